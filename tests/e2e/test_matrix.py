# SPDX-License-Identifier: Apache-2.0
"""One job's choices are the same, byte for byte, however it is run: placement, batch shape, threads, I/O, order, crashes."""
import glob, json, os, random, shutil, signal, time

from harness import POLICIES, alone, cases, same, smoke, threads, token_job

PLACEMENTS = {
    "resident": ["--weights", "host:100", "--kv", "host:100", "--hidden", "host:100"],
    "weights half": ["--weights", "host:50,disk:50"],
    "weights 30": ["--weights", "host:70,disk:30"],
    "weights disk": ["--weights", "disk:100"],
    "kv disk": ["--kv", "disk:100"],
    "kv split": ["--kv", "host:50,disk:50"],
    "hidden disk": ["--hidden", "disk:100"],
    "hidden split": ["--hidden", "host:50,disk:50"],
    "all disk": ["--weights", "disk:100", "--kv", "disk:100", "--hidden", "disk:100", "--gpu-batch-size", "2", "--num-gpu-batches", "3"],
    "percent": ["--percent", "0", "40", "0", "60", "0", "30", "--gpu-batch-size", "3", "--num-gpu-batches", "2"],
    "1 micro-batch": ["--gpu-batch-size", "4", "--num-gpu-batches", "1"],
    "2 micro-batches": ["--gpu-batch-size", "4", "--num-gpu-batches", "2"],
    "5 micro-batches": ["--gpu-batch-size", "2", "--num-gpu-batches", "5"],
    "1 slot": ["--gpu-batch-size", "1", "--num-gpu-batches", "1"],
    "3 slots": ["--gpu-batch-size", "3", "--num-gpu-batches", "1", "--weights", "disk:100"],
    "16 slots": ["--gpu-batch-size", "16", "--num-gpu-batches", "1"],
    "1 thread": ["--threads", "1"],
    "2 threads": ["--threads", "2", "--weights", "disk:100"],
    "pread": ["--io", "pread", "--weights", "disk:100", "--kv", "disk:100"],
    "pread depth 1": ["--io", "pread", "--queue-depth", "1", "--weights", "disk:100", "--kv", "host:50,disk:50"],
    "uring depth 2": ["--queue-depth", "2", "--weights", "disk:100", "--kv", "host:50,disk:50"],
    "prefetch 0": ["--prefetch", "0", "--weights", "disk:100"],
    "prefetch 1": ["--prefetch", "1", "--weights", "disk:100"],
    "prefetch 2": ["--prefetch", "2", "--weights", "disk:100"],
    "prefetch 3": ["--prefetch", "3", "--weights", "disk:100", "--kv", "disk:100"],
    "prefetch 4": ["--prefetch", "4", "--weights", "disk:100"],
    "prefill 40": ["--prefill-tokens", "40"],
    "prefill 64": ["--prefill-tokens", "64", "--gpu-batch-size", "2", "--num-gpu-batches", "3", "--kv", "disk:100"],
    "by completion": ["--order", "completion", "--gpu-batch-size", "3"],
    "budget in memory": ["--host-mem", "512M"],
}


@cases(**POLICIES)
def test_placements(t, policy):
    job = token_job(257)
    model = t.model("pre-f16")
    want = t.generate(model, job, *policy)
    t.check(all(r["error"] is None for r in want.values()), "the base run failed")
    for name, options in PLACEMENTS.items():
        same(t, t.generate(model, job, *policy, *options), want, name)


@cases(**{n: n for n in ("post-bf16", "pre-f32", "shards-bf16", "d80-f16")})
def test_other_models(t, name):
    vocab = {"post-bf16": 131, "pre-f32": 300, "shards-bf16": 211, "d80-f16": 97}[name]
    job, model = token_job(vocab, seed=3), t.model(name)
    for policy in ("full", "h2o"):
        want = t.generate(model, job, *POLICIES[policy])
        for p in ("weights half", "all disk", "kv split", "5 micro-batches", "1 thread"):
            same(t, t.generate(model, job, *POLICIES[policy], *PLACEMENTS[p]), want, f"{policy}, {p}")


@threads
@smoke
def test_a_few(t):
    job, model = token_job(257, n=8, new=10), t.model("pre-f16")
    for policy in ("full", "h2o"):
        want = t.generate(model, job, *POLICIES[policy])
        for p in ("all disk", "kv split", "2 threads", "pread"):
            same(t, t.generate(model, job, *POLICIES[policy], *PLACEMENTS[p]), want, f"{policy}, {p}")


def test_unpacked_model(t):
    """A Hugging Face folder gives what its packed form gives, and is packed once."""
    job = token_job(257, n=5)
    want = t.generate(t.model("pre-f16"), job)
    cache = t.path("packs")
    for _ in range(2):
        same(t, t.generate(t.hf("pre-f16"), job, "--pack-dir", cache, "--report", t.path("report.json")), want, "packed on the way")
        with open(t.path("report.json")) as f:
            t.eq(json.load(f)["model"]["name"], os.path.basename(t.hf("pre-f16")), "the model's name")
    t.eq(len(os.listdir(cache)), 1, "entries in the pack folder")
    pack = os.path.join(cache, os.listdir(cache)[0])
    with open(glob.glob(f"{pack}/weights-*")[0], "r+b") as f:
        f.seek(-5000, os.SEEK_END)
        f.write(b"\x55" * 5000)
    t.generate(t.hf("pre-f16"), job, "--pack-dir", cache, rc=1)
    t.last.says("checksum", pack, "remove it, and it is made anew")
    shutil.rmtree(pack)
    same(t, t.generate(t.hf("pre-f16"), job, "--pack-dir", cache), want, "packed again")


@cases(full=POLICIES["full"], h2o=POLICIES["h2o"])
def test_shuffled(t, policy):
    """A result depends neither on its neighbours nor on its place in the file."""
    job, model = token_job(257), t.model("pre-f16")
    want = t.generate(model, job, *policy)
    for k in range(3):
        mixed = list(job)
        random.Random(k).shuffle(mixed)
        got = t.generate(model, mixed, *policy, "--gpu-batch-size", 2 + k)
        same(t, got, want, f"shuffle {k}")
        t.eq(list(got), [cid for cid, _ in mixed], "records stand in the input's order")
    part = job[3:7]
    same(t, t.generate(model, part, *policy), {k: want[k] for k, _ in part}, "a part of the job")


def text_job():
    prompts = ["The old house stood", "“I do not know,” said the doctor,", "In the spring of that year", "She looked at him and", "It was"]
    reqs = []
    for i in range(15):
        b = dict(prompt=prompts[i % 5], max_tokens=8 + 3 * (i % 4), return_token_ids=True)
        if i % 2:
            b.update(temperature=0.8, top_p=0.9, seed=i, logprobs=i % 4)
        if i % 5 == 4:
            b.update(echo=True)
        reqs.append((f"text {i}", b))
    return reqs


def test_text_job(t):
    job, model = text_job(), t.model("demo-opt")
    for policy in (["--kv-policy", "full"], ["--kv-policy", "h2o", "--kv-budget", "20%"]):
        want = t.generate(model, job, *policy)
        for p in ("resident", "weights half", "all disk", "kv split", "5 micro-batches", "1 thread", "pread", "prefetch 4", "by completion"):
            same(t, t.generate(model, job, *policy, *PLACEMENTS[p]), want, p)


# ---------------------------------------------------------------- crashes

def stripped(data):
    """A results file without the moment the job began."""
    out = []
    for line in data.decode().splitlines():
        r = json.loads(line)
        if r["response"]:
            r["response"]["body"]["created"] = 0
        out.append(json.dumps(r))
    return out


@alone
@cases(full=["--kv-policy", "full"], h2o=["--kv-policy", "h2o", "--kv-heavy", "5", "--kv-recent", "5", "--kv", "host:50,disk:50"])
def test_sigkill(t, policy):
    """SIGKILL at random moments, the same command again each time: the final bytes are the uninterrupted run's."""
    kills = int(os.environ.get("PS_E2E_KILLS", "10")) // 2 or 1
    model, rng = t.model("demo-opt"), random.Random(5)
    job = t.job([(f"k{i}", dict(prompt=[2] + [rng.randrange(4, 4000) for _ in range(rng.randrange(1, 60))], max_tokens=rng.randrange(1, 50),
                                temperature=0.8, seed=i, return_token_ids=True)) for i in range(60)])
    opts = [*policy, "--weights", "disk:100", "--gpu-batch-size", "3", "--num-gpu-batches", "2"]
    begin = time.monotonic()
    t.generate(model, job, *opts)
    length = time.monotonic() - begin
    want, done, rounds = stripped(t.read("out.jsonl")), 0, 0
    while done < kills:
        rounds += 1
        t.check(rounds < 20 * kills, f"the job is too short to be killed: {done} kills in {rounds} rounds")
        for f in ("out.jsonl", "out.jsonl.part", "out.jsonl.journal"):
            if t.exists(f):
                os.remove(t.path(f))
        for attempt in range(200):
            p = t.start("generate", model, job, "-o", "out.jsonl", *opts)
            moment = rng.uniform(0.0, length * 0.9) if done + attempt < kills and attempt < 6 else 1e9
            deadline = time.monotonic() + moment
            while p.poll() is None and time.monotonic() < min(deadline, begin + 600):
                time.sleep(0.002)
                if moment > 1e8:
                    break
            if p.poll() is None and moment < 1e8:
                p.send_signal(signal.SIGKILL)
                p.communicate()
                done += 1
                if t.exists("out.jsonl"):               # killed between the last rename and the end
                    t.eq(stripped(t.read("out.jsonl")), want, "OUTPUT exists, so it is complete")
                continue
            out, err = p.communicate(timeout=120)
            t.eq(p.returncode, 0, f"a resumed run's exit; {err[-600:]!r}")
            break
        t.eq(stripped(t.read("out.jsonl")), want, f"results after {done} kills")
        t.eq(sorted(os.listdir(t.dir)), ["in.jsonl", "out.jsonl"], "what is left in the folder")
