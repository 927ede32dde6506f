# SPDX-License-Identifier: Apache-2.0
"""The parts of gpu.sh: what each runs, what it takes from reports, what it aims at (gpu.py has the running)."""
import json, math, os, re, shutil, sys

from gpu import TOP, Failed, Part, Skip, Timeout

sys.path.insert(0, os.path.join(TOP, "tests", "e2e"))
import make_models

GIB = 2 ** 30
TALLY = re.compile(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?")
POLICIES = {"full": ["--kv-policy", "full"], "h2o": ["--kv-policy", "h2o", "--kv-heavy", "6", "--kv-recent", "5"]}


# ---------------------------------------------------------------- checks

def counted(c, text):
    """A test program's own tally, cmocka's included."""
    m = TALLY.findall(text)
    n = [int(x or 0) for x in m[-1]] if m else [sum(int(x) for x in re.findall(rf"\[\s+{w}\s+\] (\d+) test", text)) for w in ("PASSED", "FAILED", "SKIPPED")]
    c.counts = [a + b for a, b in zip(c.counts, n)]
    if n[1] or not n[0]:
        raise Failed(text[-1500:].strip() or "nothing ran")


def module(c):
    return "--cuda=" + c.a.programs["module"]


def ktest(c):
    """Every CUDA row beside the scalar reference."""
    ops = ["--op=layernorm"] if c.a.tiny else []
    counted(c, c.sh([c.a.programs["ktest"], module(c), "--variant=*_cuda", "--seed=1", *ops], rc=(0, 1)))


def device(c):
    counted(c, everything(c, [c.a.programs["device"], c.a.programs["module"]]))


def everything(c, cmd):
    """Standard output and error: cmocka counts on the second."""
    return c.sh(["sh", "-c", 'exec "$@" 2>&1', "sh", *cmd], rc=(0, 1))


def packed(c, name):
    """One of the tests' models, packed."""
    src = os.path.join(TOP, "models", name) if name == "demo-opt" else make_models.make(os.path.join(c.dir, "hf"), name)
    dst = os.path.join(c.dir, "packed-" + name)
    c.sh([c.a.programs["penstock"], "convert", src, dst])
    return dst


WAYS = {"automatic": [], "all on the GPU": ["--percent", "100", "0", "100", "0", "100", "0"],
        "attention on the host": ["--weights", "host:100", "--kv", "host:100", "--hidden", "host:100", "--attention", "host"]}


def golden(name):
    """The oracle's tokens, logits and kept entries (f16 inputs of linear layers: 0.03)."""
    def run(c):
        src = make_models.make(os.path.join(c.dir, "hf"), name)
        g = json.load(open(os.path.join(TOP, "tests", "data", f"golden-{name}.json")))
        if c.a.tiny:
            g["cases"] = [x for x in g["cases"] if x["policy"] == "h2o" and x["kv_dtype"] == "f16"][:2]
        json.dump(g, open(os.path.join(src, "golden.json"), "w"))
        for way, options in list(WAYS.items())[:1 if c.a.tiny else None]:
            before = c.counts
            counted(c, c.sh([sys.executable, os.path.join(TOP, "tests", "golden.py"), c.a.programs["penstock"], src, "--only", "full,local,sink,h2o", "--tolerance", "0.03", "--", *options],
                            rc=(0, 1)))
            c.row(placement=way, passed=c.counts[0] - before[0], too_close=c.counts[2] - before[2])
    return run


def generate(c, model, requests, *options, rc=(0,)):
    """-> the records' choices by custom_id, and the report"""
    with open(f"{c.dir}/in.jsonl", "w") as f:
        for i, r in enumerate(requests):
            f.write(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": r}) + "\n")
    c.sh([c.a.programs["penstock"], "generate", model, f"{c.dir}/in.jsonl", "-o", f"{c.dir}/out.jsonl", "--overwrite", "--no-resume", "--progress", "none",
          "--report", f"{c.dir}/report.json", *map(str, options)], rc=rc)
    out = {}
    for line in open(f"{c.dir}/out.jsonl"):
        r = json.loads(line)
        if r["error"]:
            raise Failed(f"an error record: {r['error']}")
        out[r["custom_id"]] = r["response"]["body"]["choices"][0]
    return out, json.load(open(f"{c.dir}/report.json"))


def mean_nll(c, model, text, options):
    lp = generate(c, model, [dict(prompt=text, max_tokens=0, echo=True, logprobs=0)], *options)[0]["0"]["logprobs"]["token_logprobs"]
    return -sum(lp[1:]) / (len(lp) - 1), len(lp)


def nll(c):
    """The demo model's negative log-likelihood of its sample text."""
    folder = os.path.join(TOP, "models", "demo-opt")
    right, text = json.load(open(f"{folder}/right.json")), open(f"{folder}/sample.txt", encoding="utf-8", newline="").read()
    model, want, tokens = packed(c, "demo-opt"), right["nll"], right["tokens"]
    if c.a.tiny:                                            # what a run without a GPU says of the first words
        text = text[:80]
        want, tokens = mean_nll(c, model, text, ["--gpu-mem", "0"])
    for way, options in list(WAYS.items())[:1 if c.a.tiny else None]:
        got, n = mean_nll(c, model, text, options)
        ok = n == tokens and abs(got - want) <= 2e-3 * want
        c.row(placement=way, tokens=n, nll=f"{got:.5f}", right=f"{want:.5f}")
        c.counts[0 if ok else 1] += 1
    if c.counts[1]:
        raise Failed(f"NLL off by more than 0.2 %: {c.rows}")


# FlexGen's list (1b3_test), and what it cannot: KV in two places, attention on the host beside a GPU, hidden states on disk.
PLACEMENTS = {
    "all on the GPU": ["--percent", 100, 0, 100, 0, 100, 0],
    "weights host": ["--percent", 0, 100, 100, 0, 100, 0],
    "KV host": ["--percent", 100, 0, 0, 100, 100, 0],
    "KV host, attention host": ["--percent", 100, 0, 0, 100, 100, 0, "--attention", "host"],
    "KV host, attention GPU": ["--percent", 100, 0, 0, 100, 100, 0, "--attention", "gpu"],
    "weights, KV host": ["--percent", 0, 100, 0, 100, 100, 0],
    "weights disk": ["--percent", 0, 0, 100, 0, 100, 0],
    "KV disk": ["--percent", 100, 0, 0, 0, 100, 0],
    "weights half": ["--percent", 50, 50, 100, 0, 100, 0],
    "KV half": ["--percent", 100, 0, 50, 50, 100, 0],
    "everything three ways": ["--percent", 40, 30, 40, 30, 40, 30],
    "everything disk": ["--percent", 0, 0, 0, 0, 0, 0],
    "2 micro-batches": ["--percent", 100, 0, 100, 0, 100, 0, "--gpu-batch-size", 4, "--num-gpu-batches", 2],
    "3 micro-batches, attention host": ["--percent", 20, 80, 0, 100, 0, 100, "--attention", "host", "--gpu-batch-size", 3, "--num-gpu-batches", 3],
}


def differs(got, want, tolerance):
    """Two runs of one greedy request: equal tokens, log-probabilities within tolerance, up to a step whose two best are closer than that. -> why not, or None"""
    g, w = got["logprobs"], want["logprobs"]
    for i, (a, b) in enumerate(zip(got["token_ids"], want["token_ids"])):
        top = sorted(w["top_logprobs"][i].values(), reverse=True)
        if a != b:
            return None if top[0] - top[1] <= tolerance else f"token {i}: {a}, not {b}, ahead by {top[0] - top[1]:.3f}"
        if not abs(g["token_logprobs"][i] - w["token_logprobs"][i]) <= tolerance:
            return f"token {i}: log-probability {g['token_logprobs'][i]:.4f}, not {w['token_logprobs'][i]:.4f}"
    return None if len(got["token_ids"]) == len(want["token_ids"]) else "another length"


def placements(c):
    """Every placement beside the host without a GPU, and how many are its bytes as well."""
    model, tolerance = packed(c, "pre-f16"), 0.03
    requests = [dict(prompt=[2] + [3 + (i * 37 + j * 101) % 250 for j in range(3 + i * 5 % 37)], max_tokens=4 if c.a.tiny else 24, logprobs=2, ignore_eos=True, return_token_ids=True)
                for i in range(3 if c.a.tiny else 10)]
    bad = []
    for policy, p_options in POLICIES.items():
        want = generate(c, model, requests, *p_options, "--gpu-mem", "0")[0]
        first = None
        for name, options in list(PLACEMENTS.items())[:3 if c.a.tiny else None]:
            got = generate(c, model, requests, *p_options, *options)[0]
            why = next((f"{policy}, {name}: request {i}: {w}" for i in want if (w := differs(got[i], want[i], tolerance))), None)
            first = first or got
            c.row(policy=policy, placement=name, within_tolerance="no" if why else "yes", same_tokens_as_first=sum(got[i]["token_ids"] == first[i]["token_ids"] for i in want), of=len(want))
            c.counts[1 if why else 0] += 1
            bad += [why] if why else []
    if bad:
        raise Failed("\n".join(bad[:10]))


def sanitizer(tool):
    def run(c):
        exe = shutil.which("compute-sanitizer") or next((p for p in ("/usr/local/cuda/bin/compute-sanitizer",) if os.path.exists(p)), None)
        if not exe:
            raise Skip("compute-sanitizer is not there (it comes with the CUDA toolkit)")
        under = [exe, "--tool", tool, "--error-exitcode", "9"]
        model = packed(c, "pre-f16")
        with open(f"{c.dir}/in.jsonl", "w") as f:
            for i in range(5):
                f.write(json.dumps({"prompt": [2, 5 + i, 9, 40 + i] * (1 + i), "max_tokens": 4, "ignore_eos": True}) + "\n")
        jobs = {f"a job, {policy}, {way}": [c.a.programs["penstock"], "generate", model, f"{c.dir}/in.jsonl", "-o", f"{c.dir}/out.jsonl", "--overwrite", "--no-resume", "--progress", "none",
                                           *POLICIES[policy], *WAYS[way]] for policy in POLICIES for way in WAYS}
        ops = {f"ktest {op}": [c.a.programs["ktest"], module(c), "--variant=*_cuda", "--seed=1", "--op=" + op]
               for op in ("embed", "layernorm", "kv_round", "kv_compact", "kv_replay", "sample", "attn_decode", "linear", "attn_prompt")}
        todo = {**jobs, **ops}
        if c.a.tiny:
            todo = {k: todo[k] for k in ("a job, h2o, automatic", "ktest layernorm")}
        for what, cmd in todo.items():
            if what.startswith("ktest") and c.left() < 60:          # the longest come last
                c.counts[2] += 1
                c.row(what=what, findings="not run: no time left")
                continue
            try:
                c.sh(under + cmd)
            except Timeout:
                if not c.counts[0]:
                    raise
                c.counts[2] += 1
                c.row(what=what, findings="not ended in time")
                break
            c.counts[0] += 1
            c.row(what=what, findings=0)
    return run


# ---------------------------------------------------------------- rates

def probe(c):
    """Links, memory and cuBLAS: what everything else is held against."""
    sizes = ["--mib", "4", "--gemm", "4x64x32", "--gemm", "80x64x32"] if c.a.tiny else []
    c.values = v = json.loads(c.sh([c.a.programs["probe"], *sizes]))
    for what, key in (("host to GPU, pinned", "h2d_gb_per_s"), ("GPU to host, pinned", "d2h_gb_per_s"), ("both at once, each way", "both_each_way_gb_per_s"), ("reading the GPU's memory", "hbm_read_gb_per_s")):
        c.row(what=what, GB_per_s=v[key])
    c.row(what="cuBLAS f16, best", TFLOP_per_s=v["gemm_gflops"] / 1e3)
    for g in v["gemm"]:
        flops = 2.0 * g["m"] * g["n"] * g["k"]
        c.row(what=f"cuBLAS {g['m']} x {g['n']} x {g['k']}: f16 out, f32 out", TFLOP_per_s=flops / g["f16_out_ns"] / 1e3, f32_TFLOP_per_s=flops / g["f32_out_ns"] / 1e3)


def kernels(c):
    """Every CUDA row's time beside the floor; linear (bias, ReLU or residual included) beside plain cuBLAS, f32 out as ours."""
    p = c.of("probe")
    out = f"{c.dir}/k.json"
    limits = f"--limits={p['gemm_gflops']},{p['hbm_read_gb_per_s']}"
    cmd = [c.a.programs["ktest"], module(c), limits, "--json=" + out, "--seed=1"]
    records = []
    for options in ([["--bench=1", "--op=linear", "--dims=4x64x32"], ["--bench=1", "--op=attn_decode", "--dims=2x40x64"]] if c.a.tiny
                    else [["--bench=300", "--full", "--op=" + op] for op in ("attn_decode", "attn_prompt", "linear", "layernorm", "sample")]):
        c.sh(cmd + options)
        records += [r for r in json.load(open(out)) if r["op"] != "limit"]
    gemm = {f"{g['m']}x{g['n']}x{g['k']}": g for g in p["gemm"]}
    ratios = {}
    for r in records:
        beside = gemm.get(r["shape"].split()[0]) if r["op"] == "linear" else None
        ratio = beside["f32_out_ns"] / r["ns"] if beside else None
        if beside:
            ratios[r["shape"]] = ratio
        c.row(row=r["row"], shape=r["shape"], us=r["ns"] / 1e3, TFLOP_per_s=r["gflops"] / 1e3, GB_per_s=r["gb_per_s"], of_floor=f"{100 * r['share_of_floor']:.0f} %",
              cuBLAS_f32_over_ours=ratio, cuBLAS_f16_over_ours=beside["f16_out_ns"] / r["ns"] if beside else None, without_scores=r["peer_ns"] / r["ns"] if r["peer_ns"] else None)
    decode = [r["gb_per_s"] / p["hbm_read_gb_per_s"] for r in records if r["op"] == "attn_decode"]
    c.reach("decode attention of the rate of reading memory, the worst of its shapes", min(decode) if decode else None, 0.8)
    if ratios:
        worst = min(ratios, key=ratios.get)
        c.reach(f"linear with bias, ReLU or residual beside plain cuBLAS (f32 out), the worst: {worst}", ratios[worst], 0.9)


# ---------------------------------------------------------------- whole jobs

TINY = {"hidden_size": 64, "word_embed_proj_dim": 64, "ffn_dim": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 512}


def config(c, name):
    cfg = json.load(open(os.path.join(TOP, "configs", "models", f"opt-{name}.json")))
    return {**cfg, **TINY} if c.a.tiny else cfg


def weight_bytes(cfg):
    h, f = cfg["hidden_size"], cfg["ffn_dim"]
    return 2 * (cfg["num_hidden_layers"] * (4 * h * h + 2 * h * f + 9 * h + f + 2 * h) + (cfg["vocab_size"] + cfg["max_position_embeddings"] + 2) * h)


def model_path(a, name):
    return os.path.join(a.work, "models", f"opt-{name}{'-tiny' if a.tiny else ''}")


def make_model(name):
    """Random weights, kept for the parts that follow."""
    def run(c):
        cfg, dst = config(c, name), model_path(c.a, name)
        free, layers = shutil.disk_usage(c.a.work).free - GIB, cfg["num_hidden_layers"]
        if os.path.exists(dst):                             # --again, or other programs: room for it is there
            shutil.rmtree(dst)
            free = shutil.disk_usage(c.a.work).free - GIB
        if weight_bytes(cfg) > free:
            if not c.a.stand_in:
                raise Skip(f"{c.a.work}: {free / GIB:.1f} GiB free for {weight_bytes(cfg) / GIB:.1f} GiB of weights; --work names another disk, --stand-in makes one with fewer layers")
            stem = weight_bytes({**cfg, "num_hidden_layers": 0})
            layers = int((0.95 * free - stem) // ((weight_bytes(cfg) - stem) / layers))
            if layers < 2:
                raise Skip(f"{c.a.work}: {free / GIB:.1f} GiB free, less than two layers want")
        json.dump({**cfg, "num_hidden_layers": layers}, open(f"{c.dir}/config.json", "w"))
        c.sh([c.a.programs["penstock"], "convert", "--dummy", f"{c.dir}/config.json", f"{c.dir}/model"])
        os.makedirs(os.path.dirname(dst), exist_ok=True)
        os.rename(f"{c.dir}/model", dst)
        c.values = {"layers": layers, "of": cfg["num_hidden_layers"]}
        c.row(model=f"opt-{name}", layers=layers, of=cfg["num_hidden_layers"], GiB=weight_bytes({**cfg, "num_hidden_layers": layers}) / GIB)
        if layers < cfg["num_hidden_layers"]:
            c.notes.append(f"A stand-in: {layers} of {cfg['num_hidden_layers']} layers, for want of disk.")
    return run


def requests(n, prompt, new, vocab):
    return [dict(prompt=[2] + [(1000 + 7919 * i + 104729 * j) % (vocab - 10) + 5 for j in range(prompt - 1)], max_tokens=new, ignore_eos=True) for i in range(n)]


def timeline(path, p, new):
    """What a trace of a job says whose sequences all get `new` tokens: steps are the sweeps in which all of them decode and none is prefilled.
    Times in s; floor: of prefill and decode each the slowest of h2d, d2h (bytes at the probe's rates) and the GPU (of each task flops or bytes); host memory
    and disk are not in it."""
    events = json.load(open(path))["traceEvents"]
    queue = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    tasks = sorted((e["ts"] + e["dur"], queue[e["tid"]], e["name"], e["args"]) for e in events if e["ph"] == "X")
    ends, last_mb = [], 0
    for end, _, name, args in tasks:
        if name.startswith("sample"):
            if ends and args["micro_batch"] > last_mb:
                ends[-1] = end                              # the sweep goes on
            else:
                ends.append(end)
            last_mb = args["micro_batch"]
    last_prompt = max((end for end, _, name, _ in tasks if name.startswith("attn_prompt")), default=0)
    first = next((i for i, end in enumerate(ends) if end > last_prompt), 0)     # the sweep that prefilled last
    steps = [(b - a) / 1e6 for a, b in zip(ends[first:], ends[first + 1:new])]
    need = [{"h2d": 0.0, "d2h": 0.0, "GPU": 0.0} for _ in range(2)]
    streamed = 0
    for end, q, _, args in tasks:
        n = need[end > last_prompt]
        if q in ("h2d", "up"):                              # weights, and what else takes that way
            n["h2d"] += args["bytes"] / (p["h2d_gb_per_s"] * 1e9)
            streamed += args["bytes"] if q == "h2d" and ends[first] < end <= ends[first + len(steps)] else 0
        elif q == "d2h":
            n["d2h"] += args["bytes"] / (p["d2h_gb_per_s"] * 1e9)
        elif q == "compute":
            n["GPU"] += max(args["bytes"] / (p["hbm_read_gb_per_s"] * 1e9), args["flops"] / (p["gemm_gflops"] * 1e9))
    return {"step_s": sorted(steps)[len(steps) // 2] if steps else None, "steps": len(steps), "floor_s": sum(max(n.values()) for n in need),
            "floor_is": " then ".join(max(n, key=n.get) for n in need), "h2d_gb_per_s": streamed / sum(steps) / 1e9 if steps else None}


def job(c, name, n, prompt, new, options):
    """Runs one job; a row of what it did beside what the machine can. -> the report"""
    cfg, p = config(c, name), c.of("probe")
    _, r = generate(c, model_path(c.a, name), requests(n, prompt, new, cfg["vocab_size"]), "--gpu-mem", "200M" if c.a.tiny else c.a.gpu_mem, "--trace", f"{c.dir}/trace.json", *options)
    if not r["gpu"]:
        raise Failed("the run used no GPU")
    t, plan, links, m, line = r["time"], r["plan"], r["links"], r["memory"], timeline(f"{c.dir}/trace.json", p, new)
    share = lambda link, rate, unit="bytes_per_s": links[link][unit] / (rate * 1e9) if links[link][unit] else None
    where = lambda what: ", ".join(f"{k} {v / 1e9:.2g} GB" for k, v in plan["realised"][what].items() if v)
    c.row(job=f"{n} x ({prompt} + {new})", block=f"{plan['gpu_batch_size']} x {plan['num_gpu_batches']}", KV=f"{plan['kv']['policy']}, {plan['kv']['entries']} entries", weights=where("weights"),
          slabs=where("kv"), attention_on_host=f"{plan['attention']['host_slabs']} of {plan['attention']['slabs']} slabs", load_s=t["load"], prefill_s=t["prefill"], decode_s=t["decode"],
          tokens_per_s=r["throughput"]["total"], decode_tokens_per_s=n / line["step_s"] if line["step_s"] else None, step_s=line["step_s"], steps=line["steps"], floor_s=line["floor_s"],
          floor_is=line["floor_is"], h2d_busy_of_probe=share("h2d", p["h2d_gb_per_s"]), h2d_in_steps_of_probe=line["h2d_gb_per_s"] and line["h2d_gb_per_s"] / p["h2d_gb_per_s"],
          d2h_busy_of_probe=share("d2h", p["d2h_gb_per_s"]), hbm_of_probe=share("hbm", p["hbm_read_gb_per_s"]), gemm_of_probe=share("gemm", p["gemm_gflops"], "flops_per_s"),
          launches_per_pass=r["gpu"]["launches_per_decode_pass"], gpu_GB=m["peak"]["gpu"] / 1e9, host_GB=m["peak"]["host"] / 1e9, pinned_GB=m["pinned"] / 1e9, limited_by=r["limited_by"])
    c.values.update(line, plan=plan, total_s=t["prefill"] + t["decode"], tokens_per_s=r["throughput"]["total"])
    return r


def shape_of(plan):
    """Options that give another job the shape and the shares of this plan."""
    out = ["--gpu-batch-size", plan["gpu_batch_size"], "--num-gpu-batches", plan["num_gpu_batches"], "--attention",
           "auto" if 0 < plan["attention"]["host_slabs"] < plan["attention"]["slabs"] else "host" if plan["attention"]["host_slabs"] else "gpu"]
    for what in ("weights", "kv", "hidden"):
        sizes = plan["realised"][what]
        total = sum(sizes.values()) or 1
        gpu, disk = (math.floor(1000 * sizes[k] / total) / 10 for k in ("gpu", "disk"))
        out += ["--" + what, f"gpu:{gpu:.1f},host:{100 - gpu - disk:.1f},disk:{disk:.1f}"]
    return out


def size(c):
    """Prompts, their length, new tokens."""
    return (4, 16, 4) if c.a.tiny else (c.a.prompts, 512, 32)


H2O = ["--kv-policy", "h2o", "--kv-budget", "20%"]


def whole_job(name, policy):
    def run(c):
        options = {"full": [], "h2o": H2O}[policy]
        job(c, name, *size(c), options)
        took, least = c.values["total_s"], c.values["floor_s"]
        c.reach(f"OPT-{name.upper()}, 512 + 32, {policy}: time over the floor", took / least if least else None, 1.15, at_most=True)
    return run


def bookkeeping(name):
    """What H2O's scores and evictions cost: the same job, shape and number of entries with the most recent ones kept instead."""
    def run(c):
        h2o = c.of(f"bench-{name}-h2o")
        job(c, name, *size(c), ["--kv-policy", "local", "--kv-recent", h2o["plan"]["kv"]["entries"], *shape_of(h2o["plan"])])
        job(c, name, *size(c), [*H2O, *shape_of(h2o["plan"])])      # once more, beside it
        local, again = (row["step_s"] for row in c.rows)
        c.reach("H2O's bookkeeping, of a decode step", (again - local) / again if local and again else None, 0.05, at_most=True)
    return run


def stream(c):
    """All weights and all KV on the host, attention there: weights come down while queries go up. Short sequences, so that the link is the limit."""
    n, prompt, new = (4, 8, 4) if c.a.tiny else (64, 64, 32)
    job(c, "6.7b", n, prompt, new, ["--weights", "host:100", "--kv", "host:100", "--hidden", "gpu:100", "--attention", "host", "--gpu-batch-size", n // 2,
                                     "--num-gpu-batches", 2])
    rate = c.values["h2d_gb_per_s"]
    c.reach("weights that stream through decode steps, of the own pinned peak, d2h and attention on the host beside", rate and rate / c.of("probe")["h2d_gb_per_s"], 0.9)


WINDOWS = {"early": 0.0, "midway": 0.5, "late": 1.0}
STEPS = 20


def dry_plan(c, name, total, new, options):
    """The block that a whole job of this length would get, the prompt tokens of a sweep, and options for its shape and shares."""
    cfg = config(c, name)
    n = 8 if c.a.tiny else 512
    with open(f"{c.dir}/plan.jsonl", "w") as f:
        for r in requests(n, total - new, new, cfg["vocab_size"]):
            f.write(json.dumps(r) + "\n")
    text = c.sh([c.a.programs["penstock"], "generate", model_path(c.a, name), f"{c.dir}/plan.jsonl", "-o", f"{c.dir}/no.jsonl", "--dry-run", "--gpu-mem", "200M" if c.a.tiny else c.a.gpu_mem,
                 *map(str, options)])
    m = re.search(r"^block\s+(\d+) slots? x (\d+) micro-batch(?:es)?, at most (\d+) prompt tokens?", text, re.M)
    out = ["--gpu-batch-size", m[1], "--num-gpu-batches", m[2], "--prefill-tokens", m[3]]
    for what, word in (("weights", "weights"), ("kv", "KV"), ("hidden", "hidden")):
        s = [float(x) for x in re.search(rf"^{word}\s+GPU \S+ MiB \(([\d.]+) %\), host \S+ MiB \(([\d.]+) %\), disk \S+ MiB \(([\d.]+) %\)", text, re.M).groups()]
        out += ["--" + what, f"gpu:{s[0]:.1f},host:{100 - s[0] - s[2]:.1f},disk:{s[2]:.1f}"]
    a = re.search(r"^attention of (\d+) of (\d+) KV slabs on the host", text, re.M)
    return int(m[1]) * int(m[2]), int(m[3]), out + ["--attention", "auto" if not a or 0 < int(a[1]) < int(a[2]) else "host" if int(a[1]) else "gpu"]


def window(name, new, policy, at):
    """Some sweeps of a job of 512 + new: prompts as long as the text is by then, in the whole job's block and shares."""
    def run(c):
        prompt, more, steps = (16, 16, 4) if c.a.tiny else (512, new, STEPS)
        entries = max(2, int(0.2 * (prompt + more) + 0.5))
        options = ["--kv-policy", "h2o", "--kv-heavy", entries // 2, "--kv-recent", entries - entries // 2] if policy == "h2o" else []
        n, admitted, shape = dry_plan(c, name, prompt + more, more, options)
        n = min(n, 4) if c.a.tiny else n
        begin = prompt + int(WINDOWS[at] * (more - steps))
        new_tokens = min(steps + math.ceil(n * begin / admitted), more)          # some pass while the others are prefilled
        begin = min(begin, prompt + more - new_tokens)
        job(c, name, n, begin, new_tokens, [*shape, *options])
        c.notes.append(f"Sampled: sweeps of a job of {prompt} + {more}, from {begin} tokens on, in the block and with the shares of the whole job's plan."
                       + (" Slabs are as long as the text is by then." if policy == "full" else ""))
        layers = c.of(f"model-{name}")
        if layers["layers"] < layers["of"]:
            c.notes.append(f"A stand-in: {layers['layers']} of {layers['of']} layers.")
    return run


def make_parts():
    parts = [
        Part("ktest", "check", 240, "Every CUDA row beside the scalar reference", ktest),
        Part("device", "check", 60, "The cuda device's contract", device),
        *(Part(f"golden-{n}", "check", 240, f"The oracle's tokens, logits and kept entries: {n}", golden(n)) for n in ("pre-f16", "post-bf16", "pre-f32", "shards-bf16", "d80-f16")),
        Part("nll", "check", 120, "The demo model's likelihood of a text", nll),
        Part("placements", "check", 240, "FlexGen's placements and more, full and H2O, beside a run without a GPU", placements),
        *(Part(f"sanitize-{t}", "sanitize", 240, f"compute-sanitizer, {t}", sanitizer(t)) for t in ("memcheck", "racecheck", "synccheck", "initcheck")),
        Part("probe", "rates", 120, "What the links, the memory and cuBLAS do at best", probe),
        Part("kernels", "rates", 240, "CUDA rows beside the floor and beside cuBLAS", kernels, ("probe",)),
    ]
    for name in ("6.7b", "30b"):
        group, model, needs = f"bench-{name}", f"model-{name}", (f"model-{name}", "probe")
        title = f"OPT-{name.upper()}"
        parts += [Part(model, group, 240, f"{title}, random weights", make_model(name), makes=lambda a, name=name: model_path(a, name))]
        parts += [Part(f"{group}-{p}", group, 240, f"{title}, 512 + 32, {p}", whole_job(name, p), needs) for p in ("full", "h2o")]
        if name == "6.7b":
            parts += [Part("bookkeeping", group, 240, f"H2O beside keeping the most recent entries, {title}, 512 + 32", bookkeeping(name), (f"{group}-h2o",)),
                      Part("stream", group, 240, f"{title}, weights and KV on the host, attention there", stream, needs)]
        parts += [Part(f"{group}-{new}-{policy}-{at}", group, 240, f"{title}, 512 + {new}, {policy}: {at}", window(name, new, policy, at), needs, sampled=True)
                  for new in (512, 1024) for policy in ("full", "h2o") for at in WINDOWS]
    return parts


PARTS = make_parts()
