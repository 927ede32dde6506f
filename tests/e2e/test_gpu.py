# SPDX-License-Identifier: Apache-2.0
"""The program on an emulated GPU (tests/cudaemu)."""
import json

from harness import Gpu, cases, smoke, token_job


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
    run(rc=4, mem="16M").says("--gpu-mem")
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
