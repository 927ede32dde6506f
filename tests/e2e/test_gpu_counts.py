# SPDX-License-Identifier: Apache-2.0
"""What a run on a GPU moves, launches and waits for, counted: bytes on each link against arithmetic that is done here again, from the model's file and
shape alone; and what must not grow with layers, sweeps or micro-batches."""
import glob, json, os, struct

import make_models
from harness import Gpu, cases
from test_memory import MIB

LAYERS, HIDDEN, HEADS, HEAD = 3, 48, 3, 16      # of the model pre-f16
F16, F32, I32, PAGE = 2, 4, 4, 4096


def weight_bytes(model):
    """-> of a packed model's stem, and of all its layers: each tensor takes whole pages"""
    stem = layers = 0
    for path in glob.glob(f"{model}/weights-*.safetensors"):
        with open(path, "rb") as f:
            head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        for name, x in head.items():
            if "decoder" not in name:
                continue
            begin, end = x["data_offsets"]
            n = -(-(end - begin) // PAGE) * PAGE
            if ".layers." in name:
                layers += n
            else:
                stem += n
    return stem, layers


def alike(n, prompt, new):
    """n requests that begin and end together: `new` sweeps, the first with the prompts."""
    return [dict(prompt=[2] + [(7 * i + j) % 120 + 5 for j in range(prompt - 1)], max_tokens=new, ignore_eos=True) for i in range(n)]


def report(t, model, reqs, options, gpu=None):
    """-> the run's report, with all of the requests in the first sweep"""
    t.generate(model, reqs, *options, "--prefill-tokens", sum(len(r["prompt"]) for r in reqs), "--report", "r.json", gpu=gpu or Gpu(seed=1))
    with open(t.path("r.json")) as f:
        r = json.load(f)
    t.eq(r["actual"]["sweeps"], max(q["max_tokens"] for q in reqs), "sweeps")
    return r


N, PROMPT = 4, 7
SLAB = 2 * HEADS * 16 * HEAD * F16              # `full`: at most 7 + 10 - 1 entries, in classes of 16
H2O_SLAB = 2 * HEADS * 6 * HEAD * F16
DISK_SLAB = 2 * HEADS * 128 * HEAD * F16        # each head a page
NEW_ENTRY = -(-(2 * HEADS * HEAD * F16 + HEADS * I32) // 16) * 16
HOST_ROW = HEADS * HEAD * F32                   # of q, of k, of v, of the result


def total(*parts):
    return {link: sum(p.get(link, 0) for p in parts) for link in ("h2d", "d2h", "disk_read", "disk_write")}


def bytes_of(model, new):
    """Of a job of N prompts and `new` sweeps: {name: (options, bytes for each link)}. The stem passes by for the head of one sweep and the embedding of
    the next. Of writes of slabs on disk nothing is said (None): new entries are gathered over several steps."""
    rows = N * PROMPT + N * (new - 1)               # through all layers, in all sweeps
    decodes = N * (new - 1) * LAYERS                # rows of decode attention
    stem, layers = weight_bytes(model)
    once, all_sweeps = stem + layers, stem * (new + 1) + layers * new
    on_gpu, on_host = dict(h2d=once, disk_read=once), dict(h2d=all_sweeps, disk_read=once)
    on_disk = dict(h2d=all_sweeps, disk_read=all_sweeps)
    hidden = dict(h2d=rows * (LAYERS + 1) * HIDDEN * F32, d2h=rows * (LAYERS + 1) * HIDDEN * F32)
    pages = lambda n: -(-n * HIDDEN * F32 // PAGE) * PAGE
    hidden_disk = (LAYERS + 1) * (pages(N * PROMPT) + (new - 1) * pages(N))
    visits = dict(h2d=decodes * SLAB, d2h=N * LAYERS * SLAB + decodes * NEW_ENTRY)
    h2o = dict(h2d=decodes * H2O_SLAB, d2h=N * LAYERS * H2O_SLAB + decodes * NEW_ENTRY)
    far = dict(h2d=decodes * HOST_ROW, d2h=decodes * 3 * HOST_ROW + N * LAYERS * (SLAB + 16 * HEADS * I32))
    far_h2o = dict(h2d=decodes * HOST_ROW, d2h=decodes * 3 * HOST_ROW + N * LAYERS * (H2O_SLAB + 6 * HEADS * (I32 + F32)))
    from_disk = dict(h2d=decodes * DISK_SLAB, d2h=N * LAYERS * DISK_SLAB + decodes * NEW_ENTRY, disk_read=decodes * DISK_SLAB)
    policy = ["--kv-policy", "h2o", "--kv-heavy", 3, "--kv-recent", 3]
    at_gpu, at_host = ["--attention", "gpu"], ["--attention", "host"]
    return {
        "all on the GPU": (["--percent", 100, 0, 100, 0, 100, 0], total(on_gpu)),
        "weights on the host": (["--percent", 0, 100, 100, 0, 100, 0], total(on_host)),
        "weights on disk": (["--percent", 0, 0, 100, 0, 100, 0], total(on_disk)),
        "hidden on the host": (["--percent", 100, 0, 100, 0, 0, 100], total(on_gpu, hidden)),
        "hidden on disk": (["--percent", 100, 0, 100, 0, 0, 0], total(on_gpu, hidden, dict(disk_read=hidden_disk, disk_write=hidden_disk))),
        "KV visits": (["--percent", 0, 100, 0, 100, 0, 100, *at_gpu], total(on_host, hidden, visits)),
        "KV visits, h2o": (["--percent", 100, 0, 0, 100, 100, 0, *at_gpu, *policy], total(on_gpu, h2o)),
        "attention on the host": (["--percent", 0, 100, 0, 100, 100, 0, *at_host], total(on_host, far)),
        "attention on the host, h2o": (["--percent", 100, 0, 0, 100, 100, 0, *at_host, *policy], total(on_gpu, far_h2o)),
        "KV on disk": (["--percent", 100, 0, 0, 0, 100, 0, *at_gpu], {**total(on_gpu, from_disk), "disk_write": None}),
    }


@cases(**{n: n for n in bytes_of("", 1)})
def test_bytes(t, name):
    """Within 2 %, but for weights that were read ahead when the job ended: these are within what two sweeps take, and do not grow with the sweeps."""
    model, over = t.model("pre-f16"), []
    for new in (4, 10):
        options, want = bytes_of(model, new)[name]
        r = report(t, model, alike(N, PROMPT, new), [*options, "--gpu-batch-size", N + 1, "--num-gpu-batches", 1])
        got = {link: r["links"][link]["bytes"] for link in want}
        over.append({link: got[link] - (got[link] if n is None else n) for link, n in want.items()})
    for link, n in want.items():
        more = over[1][link] - over[0][link]
        t.check(n is None or abs(more) <= 0.02 * n, f"{name}: in 6 sweeps more, {more} bytes on {link} beyond the arithmetic; {n} in all")
        t.check(0 <= over[0][link] <= (2 * sum(weight_bytes(model)) if link in ("h2d", "disk_read") else 0), f"{name}: {over[0][link]} bytes on {link} beyond the arithmetic")


# ---------------------------------------------------------------- launches, waits, memory

ON_GPU = ["--percent", 100, 0, 100, 0, 100, 0]
STREAMED = ["--percent", 0, 100, 100, 0, 100, 0]


def deep(t, layers):
    """The model pre-f16 with other layers, packed."""
    def make():
        hf, dst = (os.path.join(t.shared.root, f"{layers}-layers{x}") for x in ("-hf", ""))
        t.run("convert", make_models.write_model(hf, dict(make_models.MODELS["pre-f16"], layers=layers), 5), dst)
        return dst
    return t.shared.once(("layers", layers), make)


def waits(t, layers, sweeps, batches, options):
    r = report(t, deep(t, layers), alike(4, 9, sweeps), [*options, "--gpu-batch-size", 4 // batches, "--num-gpu-batches", batches])
    t.check(0 < r["gpu"]["launches_per_decode_pass"] <= 10, f"{r['gpu']['launches_per_decode_pass']} launches for a layer and micro-batch")
    t.eq(t.last.gpu["device_syncs"], 2, "calls that wait for the whole device: cudaFree and cudaHostUnregister at the end, of")
    t.eq(t.last.gpu["peak"], r["memory"]["peak"]["gpu"], "memory of the GPU, and in the report")
    return r["gpu"]["host_syncs"]


@cases(**{"all on the GPU": ON_GPU, "weights on the host": STREAMED})
def test_waits_for_tokens_alone(t, options):
    """In the steady state the host waits once for each micro-batch's tokens, however many layers there are."""
    for layers in (2, 5):
        for batches in (1, 2):
            more = waits(t, layers, 8, batches, options) - waits(t, layers, 4, batches, options)
            t.eq(more, 4 * batches, f"waits of 4 sweeps more, {layers} layers, {batches} micro-batches")


# Hidden states come up and go down: the copy up waits for the one down that made them and for the GPU to be done with their place there, the GPU for that
# copy, the copy down for the GPU and for the copy up of what it overwrites. Attention on the host has no launch; q, k and v go down, its result comes up.
PER_PASS = {
    "all on the GPU": (ON_GPU, dict(launches=9, copies=0, events=18, stream_waits=0)),
    "hidden on the host": (["--percent", 100, 0, 100, 0, 0, 100], dict(launches=9, copies=2, events=22, stream_waits=5)),
    "attention on the host": (["--percent", 100, 0, 0, 100, 100, 0, "--attention", "host", "--kv-policy", "h2o", "--kv-heavy", 3, "--kv-recent", 3],
                              dict(launches=8, copies=4, events=24)),
}


@cases(**PER_PASS)
def test_asked_of_a_layer(t, case):
    """Each decode pass asks the same of CUDA, so that the report's figures can be told beforehand. A launch or copy has two events."""
    options, want = case
    g = report(t, t.model("pre-f16"), alike(4, 9, 5), [*options, "--gpu-batch-size", 4, "--num-gpu-batches", 1])["gpu"]
    t.eq({k: g[f"{k}_per_decode_pass"] for k in want}, want, "of a layer and micro-batch")
    for k in ("copies", "events", "stream_waits"):
        t.check(g[f"{k}_per_decode_pass"] * LAYERS * 4 <= g[k], f"{k}: {g}")


FAR = ["--percent", 100, 0, 0, 100, 100, 0, "--attention", "host"]


@cases(**{f"{model}, {n} rows{' far' * far}, sm_{sm}": (model, n, far, sm, want) for model, n, far, sm, want in (
    ("pre-f16", 70, False, 90, 9), ("pre-f16", 256, False, 90, 9), ("pre-f16", 257, False, 75, 9), ("pre-f16", 257, True, 90, 9), ("post-bf16", 256, False, 90, 9),
    ("post-bf16", 257, False, 80, 10), ("post-bf16", 257, True, 90, 10), ("post-bf16", 257, False, 75, 9))})
def test_launches_of_many_rows(t, case):
    """However many rows there are in a decode pass, a layer takes ten at most: beyond 256 linears are the library's, which wants its inputs rounded, and
    that is done where they are made (docs/design.md, CUDA rows). bf16 on a GPU that does not multiply it stays our own kernel's."""
    model, n, far, sm, want = case
    r = report(t, t.model(model), alike(n, 2, 3), [*(FAR if far else ON_GPU), "--gpu-batch-size", n, "--num-gpu-batches", 1], Gpu(seed=1, sm=sm))
    t.eq(r["gpu"]["launches_per_decode_pass"], want, f"launches for a layer and micro-batch of {n} rows")
    calls = t.last.gpu["calls"]
    products, library = calls.get("cublasLtMatmul", 0), sm >= 80 or "bf16" not in model
    t.check(n <= 256 or (products >= 6 * 2 if library else not products), f"{calls}: cuBLAS is {'not ' * library}called")
    t.check(calls.get("cublasLtMatmulAlgoGetHeuristic", 0) <= 40, f"{calls}: an algorithm is asked for once for a shape")


@cases(visits=["--percent", 100, 0, 0, 100, 100, 0, "--attention", "gpu"], host=["--percent", 100, 0, 0, 100, 100, 0, "--attention", "host"])
def test_waits_for_kv(t, options):
    """Host work that follows a copy from the GPU waits for it, in a thread of its own: new entries for their slabs, or queries; and now and then the
    scheduler for a control block. No more than three a layer and micro-batch."""
    more = waits(t, 4, 8, 2, options) - waits(t, 4, 4, 2, options)
    t.check(0 < more <= 3 * 4 * 4 * 2, f"{more} waits in 4 sweeps more")


def test_memory(t):
    """What the GPU's ceiling and the host's allow is not passed. The emulated GPU's memory is the process's, too."""
    model, reqs = t.model("demo-opt"), [dict(prompt=[2, 5, 6, 7], max_tokens=2, ignore_eos=True) for _ in range(2)]
    for gpu, host, options in ((40, 48, []), (37, 24, ["--kv", "disk:100"])):
        r = report(t, model, reqs, ["--gpu-mem", f"{gpu}M", "--host-mem", f"{host}M", *options])
        peak = t.last.gpu["peak"]
        t.check(peak <= gpu * MIB, f"{peak / MIB:.1f} MiB of the GPU, of {gpu} allowed")
        t.eq(peak, r["memory"]["peak"]["gpu"], "memory of the GPU, and in the report")
        if t.shared.slow_by == 1:
            t.check(t.last.maxrss <= peak + (host + 64) * MIB, f"peak {t.last.maxrss / MIB:.0f} MiB with {host} allowed, and {peak / MIB:.0f} for the GPU")
