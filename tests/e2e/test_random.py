# SPDX-License-Identifier: Apache-2.0
"""Random models, jobs and KV policies, each from a seed: how a job is run changes no byte of it, and what comes out is the oracle's.

PS_E2E_SEEDS is how many seeds (40), PS_E2E_SEED the first of them (1). What fails says how to repeat it, and its files stay in a
folder of their own: the model, the inputs and outputs, and commands.txt. The oracle's part needs numpy."""
import functools, json, math, os, random, shutil, sys, tempfile, traceback

import make_models
from harness import TOP, Failed, Gpu, Skipped, cases, choices, same, smoke, threads

SEEDS = range(int(os.environ.get("PS_E2E_SEED", "1")), int(os.environ.get("PS_E2E_SEED", "1")) + int(os.environ.get("PS_E2E_SEEDS", "40")))
DISK = ["--weights", "disk:100", "--kv", "disk:100", "--hidden", "disk:100"]
BASE = ["--weights", "host:100", "--kv", "host:100", "--hidden", "host:100", "--gpu-batch-size", 1, "--num-gpu-batches", 1, "--threads", 1]


# ---------------------------------------------------------------- what a seed stands for

def random_model(rng):
    heads, d = rng.randint(1, 3), rng.choice([rng.randint(1, 40), rng.choice([1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 80, 127, 128, 129])])
    if d > 40:                          # a large model is made slowly
        heads = 1
    m = dict(hidden=heads * d, heads=heads, ffn=rng.choice([1, rng.randint(1, 130)]), vocab=rng.choice([rng.randint(3, 40), rng.randint(41, 300)]),
             layers=rng.randint(1, 3), positions=rng.randint(50, 90), dtype=rng.choice(["F16", "BF16", "F32"]), post=rng.random() < 0.3,
             bias=rng.random() < 0.75, tied=rng.random() < 0.75, prefix=rng.choice(["model.decoder.", "decoder."]))
    if rng.random() < 0.35:
        m["embed"] = rng.randint(1, 50)
    if rng.random() < 0.1:
        m["final_norm"] = False
    if rng.random() < 0.3:
        m["sharp"] = 30000              # a query sees one key: scores are whole numbers, most of them 0, and ties decide
    return m


def random_job(rng, m):
    """[(custom_id, body)]; one of them may be longer than the model's positions."""
    reqs = []
    for i in range(rng.randint(2, 9)):
        few = rng.randrange(m["vocab"])
        prompt = [rng.choice([few, rng.randrange(m["vocab"])]) for _ in range(rng.choice([1] + 3 * [rng.randint(1, 40)]))]
        b = dict(prompt=prompt, max_tokens=rng.randint(1, 24), return_token_ids=True, return_tokens_as_token_ids=True)
        if rng.random() < 0.75:
            b["logprobs"] = rng.choice([0, 1, 3, 20])
        if rng.random() < 0.25:
            b["echo"] = True
        if b.get("echo") and "logprobs" in b and rng.random() < 0.4:
            b["max_tokens"] = 0
        if rng.random() < 0.5:
            b.update(temperature=rng.choice([0.7, 1.0, 1.8]), seed=rng.randrange(2 ** 32))
            b.update(rng.choice([{}, dict(top_k=rng.randint(1, 30)), dict(top_p=rng.uniform(0.2, 1)), dict(top_k=5, top_p=0.8)]))
        if rng.random() < 0.6:
            b["ignore_eos"] = True
        if rng.random() < 0.15:
            b["stop_token_ids"] = [rng.randrange(m["vocab"])]
            b["min_tokens"] = rng.randint(0, b["max_tokens"])
        reqs.append((f"r{i}", b))
    return reqs


def random_policy(rng, sharp):
    """-> (options, split(prompt tokens, the job's longest) -> (sinks, heavy, recent), None for all)"""
    name = "h2o" if sharp else rng.choice(["full", "local", "sink", "h2o", "h2o"])
    opts = ["--kv-policy", name, "--kv-dtype", rng.choice(["f16", "f32"])]
    if name == "full":
        return opts, lambda prompt, longest: None
    sinks = None if name == "local" or rng.random() < 0.5 else rng.randint(0, 6)
    if sinks is not None:
        opts += ["--kv-sinks", sinks]
    default = 4 if name == "sink" else 0
    at_least = 0 if name == "h2o" else 1
    if rng.random() < 0.5:
        heavy, recent = rng.choice([0, rng.randint(1, 20)]) if name == "h2o" else 0, rng.choice([at_least, rng.randint(at_least, 3 if sharp else 20)])
        if not (heavy or recent or sinks):
            heavy = 1
        opts += (["--kv-heavy", heavy] if name == "h2o" else []) + ["--kv-recent", recent]
        return opts, lambda prompt, longest: (default if sinks is None else sinks, heavy, recent)
    share, ratio, of = rng.random() < 0.6, None, "total"
    budget = rng.randint(1, 100) if share else rng.randint(1, 40)
    opts += ["--kv-budget", f"{budget}%" if share else budget]
    if share and rng.random() < 0.5:
        of = rng.choice(["total", "prompt"])
        opts += ["--kv-budget-of", of]
    if name == "h2o" and rng.random() < 0.5:
        ratio = rng.choice([0, 25, 75, 100])
        opts += ["--kv-heavy-ratio", ratio / 100]

    def split(prompt, longest):
        n = max(1, (2 * budget * (prompt if of == "prompt" else longest) + 100) // 200) if share else budget
        s = min(n, default if sinks is None else sinks)
        heavy = (n - s) * (50 if ratio is None else ratio) // 100 if name == "h2o" else 0
        return s, heavy, n - s - heavy
    return opts, split


def random_placement(rng, disk):
    def shares():
        h = rng.choice([0, 100, rng.randint(1, 99)])
        return f"host:{h},disk:{100 - h}"
    opts = [*DISK] if disk else [x for o in ("--weights", "--kv", "--hidden") if rng.random() < 0.8 for x in (o, shares())]
    for option, p, values in (("--gpu-batch-size", 0.8, range(1, 7)), ("--num-gpu-batches", 0.8, range(1, 5)), ("--prefetch", 0.5, range(1, 5)),
                              ("--prefill-tokens", 0.5, (1, 5, 17, 40, 64, 300)), ("--threads", 0.7, (1, 2)), ("--io", 0.4, ("pread",)),
                              ("--queue-depth", 0.3, (1, 2, 7)), ("--order", 0.2, ("completion",)), ("--verify", 0.1, ("always",))):
        if rng.random() < p:
            opts += [option, rng.choice(values)]
    return opts


class Case:
    """A seed's model, job and policy; runs them, and writes down how."""

    def __init__(self, t, seed):
        self.t, self.rng, self.commands = t, random.Random(seed), []
        self.m = random_model(self.rng)
        self.reqs = random_job(self.rng, self.m)
        self.policy, self.split = random_policy(self.rng, "sharp" in self.m)
        self.folder = os.path.join(t.shared.root, f"random-{seed}")
        self.model = t.shared.once(("random", seed), lambda: self.make(seed))
        self.valid = [(cid, b) for cid, b in self.reqs if len(b["prompt"]) + b["max_tokens"] <= self.m["positions"]]
        self.longest = max((len(b["prompt"]) + b["max_tokens"] for _, b in self.valid), default=0)

    def make(self, seed):
        make_models.write_model(os.path.join(self.folder, "hf"), self.m, seed)
        self.run("convert", os.path.join(self.folder, "hf"), os.path.join(self.folder, "model"))
        return os.path.join(self.folder, "model")

    def run(self, *args, **kw):
        self.commands.append(" ".join(map(str, (self.t.exe, *args))))
        return self.t.run(*args, **kw)

    def options(self, job, options):
        return ("generate", self.model, job, "-o", "out.jsonl", *self.policy, *options)

    def generate(self, options, reqs=None, job="in.jsonl", **kw):
        """-> the records by custom_id, and the lines of --dump-kv in an order of their own"""
        t = self.t
        for f in ("out.jsonl", "out.jsonl.part", "out.jsonl.journal", "kv.jsonl"):
            if t.exists(f):
                os.remove(t.path(f))
        t.job(reqs or self.reqs, job)
        self.run(*self.options(job, options), "--dump-kv", "kv.jsonl", rc=0 if len(self.valid) == len(self.reqs) else 3, **kw)
        records = t.records("out.jsonl")
        for r in records.values():
            if r["error"]:
                del r["error"]["line"]      # lines are shuffled
        return records, sorted(t.read("kv.jsonl").decode().splitlines())

    def least_memory(self, options):
        """The smallest --host-mem, in KiB, that takes these options, found by --dry-run."""
        def fits(kib):
            return self.run(*self.options("in.jsonl", options), "--host-mem", f"{kib}K", "--dry-run", "--no-resume", "--overwrite", rc=(0, 3, 4)).rc != 4
        high = 64
        while not fits(high):
            high *= 2
            self.t.check(high < 1 << 20, "a model of a few KiB wants a GiB")
        low = high // 2
        while high - low > max(1, high // 64):
            mid = (low + high) // 2
            low, high = (low, mid) if fits(mid) else (mid, high)
        return high


def seeded(fn):
    """A test of (t, case): a failure names its seed and keeps the files."""
    @functools.wraps(fn)
    def run(t, seed):
        c = None
        try:
            c = Case(t, seed)
            return fn(t, c)
        except Skipped:
            raise
        except Exception as e:
            kept = tempfile.mkdtemp(prefix=f"penstock-random-{seed}-")
            for d in [t.dir] + ([c.folder] if c else []):
                shutil.copytree(d, kept, dirs_exist_ok=True)
            if c:
                with open(os.path.join(kept, "commands.txt"), "w") as f:
                    f.write("\n".join(c.commands).replace(c.folder, kept) + "\n")
            why = str(e) if isinstance(e, Failed) else traceback.format_exc(limit=-4)
            raise Failed(f"{why}\n  seed {seed}; again: PS_E2E_SEED={seed} PS_E2E_SEEDS=1 tests/e2e/run.py PENSTOCK -k random; files: {kept}") from None
    return run


# ---------------------------------------------------------------- the same bytes

def placements(t, c, n):
    """The first with everything on disk."""
    want, kept = c.generate(BASE)
    t.eq(sorted(k for k, r in want.items() if r["error"] is None), sorted(k for k, _ in c.valid), "requests that fit the positions")
    for i in range(n):
        options, reqs, job = random_placement(c.rng, i == 0), list(c.reqs), "in.jsonl"
        if c.rng.random() < 0.5:
            options += ["--host-mem", f"{int(c.least_memory(options) * c.rng.choice([1, 1, c.rng.uniform(1, 2)]))}K"]
        if c.rng.random() < 0.3:
            job = "mixed.jsonl"
            c.rng.shuffle(reqs)
        what = " ".join(map(str, c.policy + options)) + (", shuffled" if reqs != c.reqs else "")
        got, got_kept = c.generate(options, reqs, job)
        same(t, got, want, what)
        for a, b in zip(got_kept, kept):
            t.eq(a, b, f"{what}: --dump-kv")
        t.eq(len(got_kept), len(kept), f"{what}: lines of --dump-kv")


@cases(**{f"seed {s}": s for s in SEEDS})
@seeded
def test_placements(t, c):
    placements(t, c, 5)


@threads
@smoke
@cases(**{f"seed {s}": s for s in SEEDS[:3]})
@seeded
def test_few_placements(t, c):
    placements(t, c, 2)


# ---------------------------------------------------------------- the oracle

def load_oracle(t):
    sys.path.insert(0, os.path.join(TOP, "tests", "oracle"))
    try:
        import rounding
    except ImportError as e:
        t.skip(f"the oracle cannot run: {e}")
    return rounding


@cases(**{f"seed {s}": s for s in SEEDS})
@seeded
def test_oracle(t, c):
    """Log-probabilities, tokens, kept entries and scores of a job that runs three sequences at a time."""
    load_oracle(t)
    return against_oracle(t, c, *c.generate(["--gpu-batch-size", 2, "--num-gpu-batches", 2, "--kv", "host:50,disk:50"]))


def against_oracle(t, c, records, lines):
    rounding = load_oracle(t)
    model = rounding.oracle.Model(os.path.join(c.folder, "hf"))
    kept = {}
    for x in map(json.loads, lines):
        kept.setdefault(x["custom_id"], {})[x["layer"]] = x
    done = close = 0
    for cid, b in c.rng.sample(c.valid, min(len(c.valid), 4)):
        choice = records[cid]["response"]["body"]["choices"][0]
        check_end(t, cid, b, choice)
        right = rounding.Right(model, b["prompt"], choice["token_ids"], c.split(len(b["prompt"]), c.longest), c.policy[3], c.policy[1])
        for compare in (lambda: check_tokens(t, cid, b, choice, right), lambda: check_kept(t, cid, kept.get(cid, {}), right)):
            n, near = compare()
            done, close = done + n, close + near
    if not done:
        t.skip(f"all of {close} comparisons are too close to call")
    return f"{done} compared, {close} too close to call"


def stop_tokens(b):
    return set(b.get("stop_token_ids", [])) | (set() if b.get("ignore_eos") else {make_models.EOS})


def check_end(t, cid, b, choice):
    """Where a sequence ends."""
    ids, stops = choice["token_ids"], stop_tokens(b)
    first = next((i for i, k in enumerate(ids) if k in stops and i >= b.get("min_tokens", 0)), None)
    if first is None:
        t.eq((len(ids), choice["finish_reason"]), (b["max_tokens"], "length"), f"{cid}: end by length")
    else:
        t.eq((len(ids), choice["finish_reason"]), (first + 1, "stop"), f"{cid}: end by a stop token")
    t.eq(choice["prompt_token_ids"], b["prompt"], f"{cid}: prompt")


def check_tokens(t, cid, b, choice, right):
    """-> (steps compared, steps too close to call)"""
    skip = len(b["prompt"]) if b.get("echo") else 0
    lp, done, close = choice["logprobs"], 0, 0
    steps = [(i, k, right.prompt(i - 1), False) for i, k in enumerate(b["prompt"]) if i] if skip else []
    steps += [(skip + i, k, right.step(i), True) for i, k in enumerate(choice["token_ids"])]
    for i, token, step, made in steps:
        if not step:                        # an entry may have been dropped that the oracle kept
            close += 1
            continue
        done += 1
        want, tol = step
        what = f"{cid}: token {i}"
        if made:
            early = i - skip < b.get("min_tokens", 0)
            may = sorted((w for k, w in enumerate(want) if not (early and k in stop_tokens(b))), reverse=True)
            best = b.get("top_k", len(may)) if b.get("temperature") else 1
            t.check(want[token] >= may[min(best, len(may)) - 1] - tol, f"{what}: {token} is not among the best {best}: {want[token]}, not {may[:best]} (tolerance {tol:.2g})")
            t.check(not (early and token in stop_tokens(b)), f"{what}: {token} before min_tokens")
        if lp is None:
            continue
        t.near(lp["token_logprobs"][i], want[token], tol, f"{what}: log-probability of {token}")
        top = {int(k.split(":")[1]): v for k, v in lp["top_logprobs"][i].items()}
        for k, v in top.items():
            t.near(v, want[k], tol, f"{what}: log-probability of {k}, of the best")
        n = min(b["logprobs"], len(want))
        t.check(token in top and n <= len(top) <= n + 1, f"{what}: {len(top)} best, asked for {n}")
        for v, w in zip(sorted(top.values(), reverse=True)[:n], sorted(want, reverse=True)):
            t.near(v, w, tol, f"{what}: the best log-probabilities")
    return done, close


def check_kept(t, cid, layers, right):
    """-> (heads compared, heads too close to call)"""
    t.eq(sorted(layers), list(range(right.layers)), f"{cid}: layers in --dump-kv")
    done = close = 0
    for l, x in layers.items():
        t.eq(x["tokens_fed"], right.fed, f"{cid}: tokens_fed")
        t.eq(x["scores"] is None, right.name != "h2o", f"{cid}: scores in --dump-kv")
        for h, got in enumerate(x["kept"]):
            head = right.head(l, h)
            if not head:
                close += 1
                continue
            done += 1
            want, scores, tol = head
            t.eq(got, want, f"{cid}: layer {l}, head {h}: kept")
            for p, a, w in zip(got, x["scores"][h] if x["scores"] else [], scores):
                t.near(a, w, tol * max(1, w), f"{cid}: layer {l}, head {h}: score of {p}")
    return done, close


# ---------------------------------------------------------------- on an emulated GPU

def gpu_placement(rng, attention):
    def shares():
        g, h = rng.choice([(100, 0), (0, 100), (0, 0), (rng.randint(0, 50), rng.randint(0, 50))])
        return f"gpu:{g},host:{h},disk:{100 - g - h}"
    opts = [x for o in ("--weights", "--kv", "--hidden") for x in (o, shares())]
    if attention == "host":             # of no slab on the GPU: which ones these are would count
        opts[3] = rng.choice(["host:100", "disk:100", "host:40,disk:60"])
    for option, values in (("--gpu-batch-size", range(1, 7)), ("--num-gpu-batches", range(1, 4)), ("--prefetch", range(1, 4)), ("--io", ("pread",)),
                           ("--prefill-tokens", (1, 17, 64))):
        if rng.random() < 0.6:
            opts += [option, rng.choice(values)]
    return [*opts, "--attention", attention]


@cases(**{f"seed {s}": s for s in SEEDS[:8]})
@seeded
def test_gpu(t, c):
    """With KV in f32, so that the oracle's tolerance holds: the same bytes for each place of decode attention, and the oracle's."""
    c.policy[3] = "f32"
    runs = []
    for attention in ("gpu", "host"):
        want = None
        for _ in range(2):
            options = gpu_placement(c.rng, attention)
            got = c.generate(options, gpu=Gpu(seed=c.rng.randrange(8)))
            want = want or got
            what = " ".join(map(str, c.policy + options))
            same(t, got[0], want[0], what)
            t.eq(got[1], want[1], f"{what}: --dump-kv")
        runs.append(want)
    return "; ".join([against_oracle(t, c, *got) for got in runs])
