# SPDX-License-Identifier: Apache-2.0
"""The program on an emulated GPU (tests/cudaemu)."""
import json

from harness import Gpu, cases, same, smoke, token_job
from test_predicted import probed


def findings(t, gpu):
    r = t.run("doctor", "--json", gpu=gpu)
    return {f["id"]: f for f in json.loads(r.out)}, r.gpu


@smoke
@cases(quick=False, race=True)
def test_doctor_sees_it(t, race):
    f, gpu = findings(t, Gpu(race=race, sm=75, mem="3G"))
    t.eq(f["cuda_module"]["health"], "ok")
    t.check("emulated sm_75 at ffff:ff:1f.0," in f["gpu"]["text"] and "3.0 of 3.0 GiB" in f["gpu"]["text"], f["gpu"]["text"])
    t.check(gpu["calls"]["cudaMemGetInfo"] > 0 and gpu["peak"] == 0, f"{gpu}")


def test_doctor_without_one(t):
    f, _ = findings(t, Gpu(sm=0))
    t.check("no GPU can be used" in f["gpu"]["text"], f["gpu"]["text"])
    f, _ = findings(t, Gpu(inplace=0))
    t.check("no GPU can be used" in f["gpu"]["text"], f["gpu"]["text"])
    f, _ = findings(t, Gpu(sm=70))
    t.check("7.5" in f["gpu"]["advice"], f["gpu"]["advice"])


@cases(count="cudaGetDeviceCount", attribute="cudaDeviceGetAttribute", properties="cudaGetDeviceProperties", memory="cudaMemGetInfo", bus="cudaDeviceGetPCIBusId")
def test_doctor_when_a_call_fails(t, call):
    f, gpu = findings(t, Gpu(fail=call + ":1:46"))
    t.check("no GPU can be used" in f["gpu"]["text"], f["gpu"]["text"])


ASK = dict(on_gpu=["--weights", "gpu:100", "--kv", "gpu:100", "--hidden", "gpu:100"], percent=["--percent", "20", "80", "0", "100", "0", "0"],
           three=["--weights", "gpu:30,host:30,disk:40", "--kv", "gpu:40,host:30,disk:30", "--attention", "host", "--num-gpu-batches", "2"], auto=[])


@cases(**ASK)
def test_plans(t, ask):
    """A plan alone takes nothing of the GPU."""
    m, job = t.model("pre-f16"), t.job(token_job(257, n=6))
    r = t.run("generate", m, job, "-o", "out.jsonl", "--dry-run", *ask, gpu=Gpu(mem="256M")).says("weights  GPU", "memory   on the GPU", "of it pinned")
    t.eq((r.gpu["peak"], t.exists("out.jsonl")), (0, False), "memory of the GPU, OUTPUT")
    if "--percent" in ask:
        r.says("hidden   GPU 0.0 MiB (0.0 %), host 0.0 MiB (0.0 %), disk")


def test_ceilings(t):
    m, job = t.model("pre-f16"), t.job(token_job(257, n=6))
    run = lambda *opts, rc=0, **knobs: t.run("generate", m, job, "-o", "out.jsonl", "--dry-run", *opts, rc=rc, gpu=Gpu(**knobs))
    run("--gpu-mem", "1M", rc=4, mem="256M").says("no plan fits --gpu-mem 1M", "on the GPU", "It fits with", "and --gpu-mem")
    run(rc=4, mem="16M").says("--gpu-mem 0")
    run("--gpu-mem", "300M", mem="256M").says("warning", "--gpu-mem", "256 MiB free", "at most 243 MiB")
    r = run("--gpu-mem", "40M", mem="256M").says("of 40.0 MiB allowed")
    t.check("warning: --gpu-mem" not in r.err, r.err)
    run("--host-mem", "0", rc=4, mem="256M").says("--host-mem", "smallest")


@cases(**{"no device": (dict(sm=0), "no cuda-capable device"), "too old": (dict(sm=70), "compute capability 7.0, 7.5"),
          "driver": (dict(fail="cudaGetDeviceCount:1:35"), "cudaErrorInsufficientDriver"), "a call": (dict(fail="cudaMemGetInfo:1:2"), "cudaMemGetInfo")})
def test_without_a_usable_gpu(t, case):
    """Everything runs on the host; what cannot is refused in the words of who knows."""
    knobs, words = case
    m, job = t.model("pre-f16"), t.job(token_job(257, n=3))
    run = lambda *opts, rc: t.run("generate", m, job, "-o", "out.jsonl", *opts, rc=rc, gpu=Gpu(**knobs))
    for option in (["--kv", "gpu:10,host:90"], ["--percent", "20", "80", "0", "100", "0", "100"], ["--attention", "gpu"]):
        run(*option, rc=2).says(option[0], words)
        t.check(not t.exists("out.jsonl"), "something was written")
    run("--gpu-mem", "1G", "--attention", "host", rc=0).says("--gpu-mem does nothing here", words)


def test_less_can_be_pinned(t):
    """A plan with less pinned memory, which is said, and the same results; if none does, one without the GPU, or a refusal if that is asked for."""
    t.write("config.json", json.dumps({"model_type": "opt", "activation_function": "relu", "do_layer_norm_before": True, "ffn_dim": 1024, "hidden_size": 256,
        "max_position_embeddings": 128, "num_attention_heads": 4, "num_hidden_layers": 3, "vocab_size": 1000, "word_embed_proj_dim": 256, "bos_token_id": 2,
        "eos_token_id": 2, "pad_token_id": 1, "torch_dtype": "float16"}))
    t.run("convert", "--dummy", "config.json", "model")
    job, options = token_job(1000, n=3, new=4), ["--weights", "host:100", "--gpu-batch-size", 1, "--num-gpu-batches", 1, "--report", "report.json"]

    def pinned():
        with open(t.path("report.json")) as f:
            return json.load(f)["memory"]["pinned"]

    want = t.generate("model", job, *options, gpu=Gpu())
    most = pinned()
    for pin in (3 << 20, most, most + 4095):    # the device needs a page for itself
        same(t, t.generate("model", job, *options, gpu=Gpu(pin=pin)), want, f"{pin} bytes")
        t.last.says("warning", "planning again", "cudaHostRegister")
        t.check(0 < pinned() < min(pin, most), f"{pinned()} of {most} bytes")
    want = t.generate("model", job, *options)
    for little in ("600K", "4K"):
        same(t, t.generate("model", job, *options, gpu=Gpu(pin=little)), want, f"{little} can be pinned")
        t.last.says("warning", "planning again", "cudaHostRegister", "going on without the GPU")
        t.eq(pinned(), None, "pinned bytes without the GPU")
        for asked in (["--gpu-mem", "200M"], ["--kv", "gpu:100"], ["--attention", "gpu"]):
            t.generate("model", job, *options, *asked, rc=4, gpu=Gpu(pin=little))
            t.last.says("no plan fits pinned memory of", "with --gpu-mem 0", "Without the GPU", "ulimit -l")
            t.check(not t.exists("out.jsonl") and "going on" not in t.last.err, f"{asked}: {t.last.err}")


@cases(enough=False, little=True)
def test_bench_with_little_pinned(t, little):
    """What bench predicts is of the schedule that it runs, also where it had to plan again."""
    predicted = {}
    for how in ("ours", "barrier"):
        r = t.run("bench", t.model("demo-opt"), "--prompt-len", 5, "--gen-len", 3, "--requests", 4, "--weights", "host:100", "--gpu-batch-size", 2, "--num-gpu-batches", 2,
              "--prefetch", 1, *(["--barrier"] if how == "barrier" else []), "-o", "b.json", env={"XDG_CACHE_HOME": probed(t, True)}, gpu=Gpu(**({"pin": "8M"} if little else {})))
        t.check(little == ("are pinned" in r.err), r.err)
        with open(t.path("b.json")) as f:
            predicted[how] = json.load(f)["rows"][0]["plan"]["predicted_s"]
    t.check(predicted["barrier"] > predicted["ours"] * 1.05, f"waiting for all after each pass costs nothing: {predicted}")


def test_bench_when_nothing_is_pinned(t):
    """As generate: without the GPU, unless it is asked for."""
    bench = ["bench", t.model("pre-f16"), "--prompt-len", 5, "--gen-len", 3, "--requests", 4, "-o", "b.json"]
    t.run(*bench, gpu=Gpu(pin="4K")).says("warning", "cudaHostRegister", "going on without the GPU")
    with open(t.path("b.json")) as f:
        t.eq([x["memory"]["gpu"] for x in json.load(f)["rows"]], [None], "bytes of the GPU in the plan")
    t.run(*bench, "--gpu-mem", "200M", rc=4, gpu=Gpu(pin="4K")).says("no plan fits pinned memory of 0M", "with --gpu-mem 0")


def test_report(t):
    """What the report says of the GPU is what was asked of it."""
    m, job = t.model("pre-f16"), token_job(257, n=8)
    options = ["--weights", "gpu:50,host:50", "--kv", "gpu:50,host:50", "--gpu-batch-size", 2, "--num-gpu-batches", 2, "--attention", "host", "--gpu-mem", "100M"]
    t.generate(m, job, *options, "--report", "report.json", gpu=Gpu())
    calls, peak = t.last.gpu["calls"], t.last.gpu["peak"]
    with open(t.path("report.json")) as f:
        r = json.load(f)
    for key, call in (("launches", "launch"), ("copies", "cudaMemcpyAsync"), ("stream_waits", "cudaStreamWaitEvent")):
        t.eq(r["gpu"][key], calls[call], key)
    t.check(0 < r["gpu"]["launches_per_decode_pass"] <= 10, f'{r["gpu"]}')
    t.eq((r["memory"]["peak"]["gpu"], r["memory"]["budget"]["gpu"], r["machine"]["gpu"]), (peak, 100 << 20, "emulated sm_90"))
    t.check(0 < r["memory"]["pinned"] <= r["memory"]["planned_host"] + 4096, f'{r["memory"]}')
    a, kv = r["plan"]["attention"], r["plan"]["realised"]["kv"]
    t.eq((a["wanted"], a["host_slabs"] * 2), ("host", a["slabs"]), "half of the slabs lie on the GPU")
    t.check(kv["gpu"] == kv["host"] > 0, f"{kv}")
    t.check(r["links"]["h2d"]["bytes"] > 0 and r["links"]["hbm"]["bytes"] > r["links"]["dram"]["bytes"] > 0, f'{r["links"]}')
    t.generate(m, job, "--report", "report.json", "--gpu-mem", 0, gpu=None)
    with open(t.path("report.json")) as f:
        r = json.load(f)
    t.eq((r["gpu"], r["plan"]["attention"], r["machine"]["gpu"], r["memory"]["pinned"]), (None,) * 4, "without a GPU")
