# SPDX-License-Identifier: Apache-2.0
"""Budgets: the peak stays within --host-mem + 64 MiB; what does not fit is refused with a table; inputs take bounded memory."""
import json, os, re, shutil, struct, zipfile

from harness import TOP, alone, cases, choices, same, token_job
from test_convert import pickled, read_header, weights

MIB = 1 << 20
OPT_125M = os.path.join(TOP, "configs", "models", "opt-125m.json")


def dummy(t):
    """OPT-125M's shape with random weights: large enough that a budget means something."""
    def make():
        dst = os.path.join(t.shared.root, "dummy-125m")
        t.run("convert", "--dummy", OPT_125M, dst, timeout=120)
        return dst
    return t.shared.once("dummy-125m", make)


@alone
@cases(streamed=(160, []), small=(112, ["--gpu-batch-size", "2", "--num-gpu-batches", "1"]), h2o=(160, ["--kv-policy", "h2o"]),
       kv_disk=(160, ["--kv", "disk:100", "--hidden", "disk:100", "--gpu-batch-size", "4", "--num-gpu-batches", "2"]), resident=(512, []))
def test_peak(t, value):
    mem, opts = value
    if t.shared.slow_by > 1:
        t.skip("sanitizers take memory of their own")
    m = dummy(t)
    r = t.generate(m, [dict(prompt=[2] + [7 * i % 50000 for i in range(60)], max_tokens=4, ignore_eos=True) for _ in range(6)], "--host-mem", f"{mem}M", *opts,
                   "--report", t.path("r.json"), timeout=180)
    t.check(all(x["error"] is None for x in r.values()), "the job failed")
    t.check(t.last.maxrss <= (mem + 64) * MIB, f"peak {t.last.maxrss / MIB:.0f} MiB with --host-mem {mem}M")


def wide(t):
    """A model of 354 MiB in f32, whose largest tensor has 24: what is not streamed tensor by tensor shows."""
    def make():
        dst = os.path.join(t.shared.root, "wide-f32")
        config = dict(json.load(open(OPT_125M)), vocab_size=8192)
        t.run("convert", "--dummy", t.write("config.json", json.dumps(config)), dst, "--dtype", "f32", timeout=120)
        return dst
    return t.shared.once("wide-f32", make)


def as_shards(folder, tensors):
    index = {}
    for k in range(3):
        head, at, mine = {}, 0, tensors[k::3]
        for n, shape, data in mine:
            head[n] = dict(dtype="F32", shape=shape, data_offsets=[at, at + len(data)])
            index[n], at = f"model-{k + 1:05}-of-00003.safetensors", at + len(data)
        with open(os.path.join(folder, f"model-{k + 1:05}-of-00003.safetensors"), "wb") as f:
            text = json.dumps(head).encode()
            f.write(struct.pack("<Q", len(text)) + text)
            for _, _, data in mine:
                f.write(data)
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump(dict(metadata={}, weight_map=index), f)


def as_bin(folder, tensors, transposed=False):
    def view(shape):
        return [[0, [1, shape[0]]]] if transposed and len(shape) == 2 else []
    with zipfile.ZipFile(os.path.join(folder, "pytorch_model.bin"), "w", zipfile.ZIP_STORED) as z:
        text = pickled([(n, s, len(d) // 4, *(view(s) and view(s)[0])) for n, s, d in tensors])
        z.writestr("archive/data.pkl", text.replace(b"HalfStorage", b"FloatStorage"))
        for k, (_, _, data) in enumerate(tensors):
            z.writestr(f"archive/data/{k}", data)


@cases(shards=as_shards, bin=as_bin, transposed=lambda folder, tensors: as_bin(folder, tensors, True))
def test_convert_peak(t, write):
    """convert stays within 256 MiB and the largest tensor, however large the checkpoint and however many the threads."""
    if t.shared.slow_by > 1:
        t.skip("sanitizers take memory of their own")
    if shutil.disk_usage(t.dir).free < 2 << 30:
        t.skip("less than 2 GiB of disk is free")
    path = weights(wide(t))[0]
    head, base = read_header(path)
    with open(path, "rb") as f:
        data = memoryview(f.read())[base:]
    tensors = [(n, x["shape"], data[slice(*x["data_offsets"])]) for n, x in head.items() if n[0] != "_"]
    whole, largest = sum(len(d) for _, _, d in tensors), max(len(d) for _, _, d in tensors)
    t.check(whole > 256 * MIB + 2 * largest, "the model is too small to show anything")
    os.mkdir(t.path("src"))
    shutil.copy(os.path.join(wide(t), "config.json"), t.path("src"))
    write(t.path("src"), tensors)
    del data, tensors
    peaks = []
    for threads in ([], ["--threads", "64"]):
        r = t.run("convert", "src", "dst", "--dtype", "f16", "--overwrite", *threads, timeout=120)
        peaks.append(r.maxrss)
        t.check(r.maxrss <= 256 * MIB + largest, f"peak {r.maxrss / MIB:.0f} MiB {threads}")
    return f"peak {' and '.join(f'{p / MIB:.0f}' for p in peaks)} MiB of {(256 * MIB + largest) / MIB:.0f}"


def test_does_not_fit(t):
    """Exit 4 with an itemised table and the smallest budget, which then works."""
    m = t.model("demo-opt")
    job = t.job(token_job(4096, n=6))
    r = t.run("generate", m, job, "-o", "out.jsonl", "--host-mem", "1M", rc=4).says("weights", "kv", "host-mem")
    t.check(not t.exists("out.jsonl") and not t.exists("out.jsonl.part"), "something was written")
    sizes = [float(n) * {"K": 1 / 1024, "M": 1, "G": 1024}[u] for n, u in re.findall(r"--host-mem[ =](\d+(?:\.\d+)?) ?([KMG])", r.err)]
    t.check(sizes, f"no budget is named: {r.err[-500:]}")
    t.run("generate", m, job, "-o", "out.jsonl", "--host-mem", f"{max(sizes):g}M" if max(sizes) == int(max(sizes)) else f"{int(max(sizes) * 1024) + 1}K")


def test_disk_budget(t):
    t.run("generate", t.model("demo-opt"), t.job(token_job(4096, n=6)), "-o", "out.jsonl", "--kv", "disk:100", "--disk-space", "4K", rc=4).says("disk")


@alone
def test_many_lines(t):
    """A few bytes a line: 300,000 lines, almost all of them wrong, in a small budget."""
    if t.shared.slow_by > 1:
        t.skip("too long under a sanitizer")
    with open(t.path("in.jsonl"), "w") as f:
        for i in range(300000):
            f.write('{"custom_id": "request-number-%d", "method": "POST", "url": "/v1/completions", "body": {"prompt": [2, %d]%s}}\n'
                    % (i, 5 if i % 100000 == 7 else 99999, ', "max_tokens": 2'))
    r = t.run("generate", t.model("demo-opt"), "in.jsonl", "-o", "out.jsonl", "--host-mem", "64M", rc=3, timeout=180)
    t.check(r.maxrss <= 128 * MIB, f"peak {r.maxrss / MIB:.0f} MiB")
    n = good = 0
    for i, line in enumerate(open(t.path("out.jsonl"))):
        n += 1
        if i % 100000 == 7:
            good += json.loads(line)["error"] is None
    t.eq((n, good), (300000, 3), "records")


@alone
def test_address_space_limit(t):
    """Under a hard limit of address space: the right results, or a refusal."""
    import resource
    if t.shared.slow_by > 1:
        t.skip("sanitizers need address space")
    job, m = token_job(4096, n=6), t.model("demo-opt")
    want = t.generate(m, job, "--threads", "1")
    done = 0
    for mib in (32, 64, 96, 128, 192, 256, 512):
        for f in ("out.jsonl", "out.jsonl.part", "out.jsonl.journal"):
            if t.exists(f):
                os.remove(t.path(f))
        r = t.run("generate", m, t.path("in.jsonl"), "-o", "out.jsonl", "--threads", "1", "--host-mem", "40M", rc=(0, 1, 4, 127),
                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (mib * MIB, mib * MIB)))
        if r.rc == 0:
            same(t, t.records("out.jsonl"), want, f"{mib} MiB")
            done += 1
        else:
            t.check(r.err.strip(), "nothing was said")
    t.check(done, "never enough")


def test_every_allocation(t):
    """The n-th allocation of the whole program fails, whoever makes it: an error that says so or the right results, and the job goes on later.
    All at its start and end, some of the thousands of a vocabulary between."""
    module = t.preload("fail-alloc.so")
    m = t.model("demo-opt")
    reqs = [dict(prompt="It was", max_tokens=4, logprobs=2), dict(prompt=[2, 5], max_tokens=3, temperature=0.8, seed=1, stop=["zz"], echo=True)]
    options = ("--threads", "1", "--host-mem", "40M", "--kv", "disk:100")
    want, job = t.generate(m, reqs, *options), t.path("in.jsonl")

    def run(n, more=""):
        for f in ("hit", "out.jsonl", "out.jsonl.part", "out.jsonl.journal"):
            if t.exists(f):
                os.remove(t.path(f))
        r = t.run("generate", m, job, "-o", "out.jsonl", *options, rc=(0, 1), timeout=20,
                  env={"LD_PRELOAD": module, "FAIL_ALLOC": f"{n}{more}:{t.path('hit')}"})
        t.check(r.rc == 0 or r.err.strip(), f"allocation {n}{more}: nothing was said")
        if r.rc == 0 or t.exists("out.jsonl"):          # which may be there, and its folder not synced
            same(t, t.records("out.jsonl"), want, f"allocation {n}{more}")
        return t.exists("hit")

    low, high = 1, 1 << 17
    while high - low > 1:
        mid = (low + high) // 2
        low, high = (mid, high) if run(mid) else (low, mid)
    t.check(100 < low < 1 << 16, f"{low} allocations")
    for k, n in enumerate([*range(1, 70), *range(70, low, 331), *range(low - 70, low + 1)]):
        run(n)
        if k % 20 == 0:
            t.run("generate", m, job, "-o", "out.jsonl", *options)
            same(t, t.records("out.jsonl"), want, f"the same command after allocation {n}")
            run(n, "+")


PLAN = ["plan", OPT_125M, "--hardware", os.path.join(TOP, "configs", "hardware", "t4-gcp.json"), "--requests", "4", "--prompt-len", "16", "--gen-len", "2"]
@cases(convert=["convert", "HF", "dst", "--threads", "1"], dummy=["convert", "--dummy", "HF/config.json", "dst", "--threads", "1"], tokenize=["tokenize", "HF", "text"],
       decode=["tokenize", "HF", "ids", "--decode"], inspect=["inspect", "HF", "--json"], inspect_packed=["inspect", "PACKED", "--verify"], plan=PLAN,
       generate=["generate", "HF", "in.jsonl", "-o", "out.jsonl", "--pack-dir", "packed", "--threads", "1", "--host-mem", "40M"])
def test_allocations(t, args):
    """The n-th allocation of other commands fails, and of packing for generate: what was asked for, or an error that says why and leaves nothing half made.
    PS_E2E_ALLOCS: how many of them, 30 unless told."""
    module, points = t.preload("fail-alloc.so"), int(os.environ.get("PS_E2E_ALLOCS", "30"))
    hf, packed = t.hf("demo-opt"), t.model("demo-opt")
    args = [packed if a == "PACKED" else hf + a[2:] if a[:2] == "HF" else a for a in args]
    t.write("text", "It was a dark night, and no light was lit.\n" * 20)
    t.write("ids", t.run("tokenize", hf, "text").out)
    t.job([dict(prompt="It was", max_tokens=4), dict(prompt=[2, 5], max_tokens=3, temperature=0.8, seed=1, stop=["zz"])])
    ours = set(os.listdir(t.dir))

    def made():
        out = {}
        for top, _, names in os.walk(t.dir):
            for name in names:
                path = os.path.relpath(os.path.join(top, name), t.dir)
                if path not in ours:
                    out[path] = json.dumps(choices(t.records(path))).encode() if path == "out.jsonl" else t.read(path)
        return out

    def run(n, **kw):
        for name in set(os.listdir(t.dir)) - ours:
            (shutil.rmtree if os.path.isdir(t.path(name)) else os.remove)(t.path(name))
        return t.run(*args, timeout=30, **kw)

    want = run(0).out
    files = made()

    def fails(n):
        r = run(n, rc=(0, 1), env={"LD_PRELOAD": module, "FAIL_ALLOC": f"{n}:{t.path('hit')}"})
        hit = t.exists("hit")
        if hit:
            os.remove(t.path("hit"))
        if r.rc == 0:
            t.eq(r.out, want, f"allocation {n}: stdout")
            t.eq(made(), files, f"allocation {n}: files")
        else:
            t.check("memory" in r.err, f"allocation {n}: what failed is not said: {r.err!r}")
            for name in made():                         # a model that was packed, a job that goes on
                t.check(name.startswith("out.jsonl") or made()[name] == files.get(name), f"allocation {n}: {name} is left")
        return hit

    low, high = 1, 1 << 18
    while high - low > 1:
        mid = (low + high) // 2
        low, high = (mid, high) if fails(mid) else (low, mid)
    t.check(20 < low < 1 << 17, f"{low} allocations")
    for n in sorted({*range(1, points // 4), *range(1, low, 1 + low // points), *range(max(1, low - points // 4), low + 1)}):
        fails(n)
    return f"{low} allocations"
