# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in a run on an emulated GPU: every call of CUDA and cuBLAS in turn, work that fails on the GPU, disks, signals. An error names the
call in CUDA's words, nothing leaks or hangs, and the same command goes on to the same bytes."""
import glob, os, random, signal, time

import make_models
from harness import POLICIES, Gpu, alone, cases, same
from test_gpu_matrix import EVERYTHING, small_job

OPTIONS = [*EVERYTHING["host"], *POLICIES["h2o"], "--gpu-batch-size", "2", "--num-gpu-batches", "2"]
ALONE = [*EVERYTHING["host"], *POLICIES["h2o"], "--gpu-batch-size", "1", "--num-gpu-batches", "1"]    # nobody's rows beside its own, after whatever end
NAMES = {2: "cudaErrorMemoryAllocation", 46: "cudaErrorDevicesUnavailable", 700: "cudaErrorIllegalAddress", 719: "cudaErrorLaunchFailure"}
# These only tell the report how long something took, or give back when the results are complete.
SURVIVED = {"cudaEventElapsedTime", "cudaEventDestroy", "cudaStreamDestroy", "cudaStreamSynchronize", "cudaFree", "cudaHostUnregister", "cublasLtDestroy"}
HELPERS = ("out.jsonl.part", "out.jsonl.journal")


CUBLAS = 260                                            # tokens of a prompt: from 257 rows on a linear is the library's


def reqs(longest=70, others=3):
    return small_job()[:others] + [("long", dict(prompt=[2] + [i % 200 + 5 for i in range(longest)], max_tokens=2, logprobs=2))]


def long_model(t):
    """The model pre-f16 with room for such a prompt, packed."""
    def make():
        hf, dst = (os.path.join(t.shared.root, f"long{x}") for x in ("-hf", ""))
        t.run("convert", make_models.write_model(hf, dict(make_models.MODELS["pre-f16"], positions=300), 1), dst)
        return dst
    return t.shared.once("long", make)


def clean(t):
    for f in ("out.jsonl", *HELPERS):
        if t.exists(f):
            os.remove(t.path(f))


class Job:
    def __init__(self, t, longest=70, others=3, options=OPTIONS):
        self.t, self.model, self.options = t, long_model(t) if longest == CUBLAS else t.model("pre-f16"), options
        self.want = t.generate(self.model, reqs(longest, others), *options, gpu=Gpu(seed=1))
        self.file, self.calls = t.path("in.jsonl"), t.last.gpu["calls"]
        t.check(longest < CUBLAS or self.calls.get("cublasLtMatmul", 0) > 0, "cuBLAS is not called")
        clean(t)

    def run(self, gpu, rc, timeout=20, **kw):
        return self.t.run("generate", self.model, self.file, "-o", "out.jsonl", *self.options, gpu=gpu, rc=rc, timeout=timeout, **kw)

    def same(self, what):
        same(self.t, self.t.records("out.jsonl"), self.want, what)
        clean(self.t)

    def goes_on(self, what):
        self.t.check(not self.t.exists("out.jsonl"), f"{what}: OUTPUT is there")
        for f in HELPERS:
            self.t.check(self.t.exists(f), f"{what}: no {f}")
        self.run(Gpu(seed=1), 0)
        self.same(f"{what}, and on")


def fails(job, function, n, code, resume, named=True):
    """named: it is this call that is told of, not another one after it in whose way the broken context was."""
    what = f"{function}, call {n}, {NAMES[code]}"
    gpu = Gpu(seed=1, leaks=code == 700 or function in SURVIVED, fail=f"{function}:{n}:{code}")
    r = job.run(gpu, (0, 1, 2))
    if r.rc == 0:                       # how often a thread has to wait for an event is a matter of time: there may be fewer calls this time
        job.t.check(function in SURVIVED or job.t.last.gpu["calls"].get(function, 0) < n, f"{what}: nobody noticed")
        return job.same(what)
    if named:
        r.says("launch of" if function == "launch" else function, "cuBLAS status" if function.startswith("cublas") and code != 700 else "")
    job.t.check(function.startswith("cublas") or NAMES[code] in r.err, f"{what}: {r.err[-400:]}")
    if r.rc == 2:                       # asked before the job began: no GPU, and no share on it
        return r.says("no GPU can be used")
    r.says("queue" if "queue" in r.err else "the GPU cannot be used")
    if resume:
        return job.goes_on(what)
    clean(job.t)


@cases(**{f"{i + 1} of 4": i for i in range(4)})
def test_every_call(t, part):
    """The first call of each function, one in the middle, and the last; with PS_E2E_CALLS=all each call of a job of two prompts (of
    the thousands that make events one of 256). A quarter of the functions."""
    every = os.environ.get("PS_E2E_CALLS") == "all"
    job = Job(t, CUBLAS, 1, ALONE) if every else Job(t, CUBLAS)
    for function in sorted(job.calls)[part::4]:
        n = job.calls[function]
        if function == "cudaHostRegister":
            continue
        codes = {1: 2, (n + 1) // 2: 46, n: 700}
        if every:
            step = 256 if n > 4096 else 1               # events are made and given back thousands at a time
            codes |= {k: (2, 46, 700)[k % 3] for k in range(2, n, step)}
        for k, code in codes.items():
            fails(job, function, k, code, resume=code == 46, named=code != 700)     # a broken context: whichever thread meets it first tells


def test_pinning_refused(t):
    """Not all of it: another plan, or none; nor what the device needs for itself: the same again, with room for that."""
    job = Job(t)
    job.run(Gpu(fail="cudaHostRegister:1:2"), 4).says("cudaHostRegister", NAMES[2], "pinned memory of 0M", "with --gpu-mem 0")
    clean(t)
    job.run(Gpu(fail=f"cudaHostRegister:{job.calls['cudaHostRegister']}:2"), 0).says("planning again", "cudaHostRegister", NAMES[2])
    job.same("planned again")


@cases(**{"700": 700, "719": 719})
def test_work_that_fails(t, code):
    """A kernel or copy that fails on the GPU, of which later calls tell."""
    job = Job(t)
    for n in (1, 60, 150):
        r = job.run(Gpu(seed=n % 4, leaks=True, fault=f"{n}:{code}"), 1).says(NAMES[code])
        t.check(n > 60 or not t.exists("out.jsonl"), r.err)
        job.goes_on(f"work {n}, {code}")


# ---------------------------------------------------------------- signals

class LongJob(Job):
    """A second or two long."""

    def __init__(self, t):
        self.t, self.model, self.options = t, t.model("pre-f16"), OPTIONS
        self.file = t.job([(f"k{i}", dict(prompt=[2, 9 + i, 30], max_tokens=2 + i % 5, temperature=0.8, seed=i, ignore_eos=True)) for i in range(14)])
        self.run(Gpu(seed=1), 0)
        self.want = t.records("out.jsonl")
        clean(t)

    def start(self):
        t = self.t
        return t.start("generate", self.model, self.file, "-o", "out.jsonl", *self.options, gpu=Gpu(seed=1))

    def begun(self, p):
        """Waits until results are there."""
        while p.poll() is None and not (self.t.exists(HELPERS[0]) and self.t.read(HELPERS[0])):
            time.sleep(0.002)
        return p


@alone
def test_sigkill(t):
    job, rng = LongJob(t), random.Random(3)
    for kill in range(4):
        p = job.begun(job.start())
        time.sleep(rng.uniform(0, 0.1))
        p.send_signal(signal.SIGKILL)
        p.communicate()
        t.eq(p.returncode, -signal.SIGKILL, "the job is too short to be killed: exit")
        if kill % 2:
            job.goes_on(f"kill {kill}")         # after two in a row


@alone
def test_signals(t):
    job = LongJob(t)
    for signals in (1, 2):
        p = job.begun(job.start())
        for _ in range(signals):
            p.send_signal(signal.SIGINT)
            time.sleep(0.02)
        p.communicate(timeout=30)               # after the second, nobody counts
        t.eq(p.returncode, 130, f"exit after {signals} signals")
        job.goes_on(f"{signals} signals")


# ---------------------------------------------------------------- disks

@cases(**{spec: spec for spec in ("read:3:EIO", "read:40:EIO", "write:2:EIO", "write:5:ENOSPC", "flip:9")})
def test_disk_faults(t, spec):
    job = Job(t)
    job.run(Gpu(seed=1), 1, env={"PS_FAULT": spec}).says("offload file" if "write" in spec else "checksum" if "flip" in spec else "weights")
    job.goes_on(spec)


def test_flipped_bit(t):
    """Weights that changed on disk: the checksum's error, wherever they were to go."""
    src, dst = t.model("pre-f16"), t.path("m")
    os.mkdir(dst)
    for path in glob.glob(f"{src}/*"):
        with open(path, "rb") as f:
            t.write(os.path.join("m", os.path.basename(path)), f.read())
    path = glob.glob(f"{dst}/weights-*")[0]
    with open(path, "r+b") as f:
        f.seek(-5000, os.SEEK_END)
        byte = f.read(1)[0]
        f.seek(-5000, os.SEEK_END)
        f.write(bytes([byte ^ 4]))
    for tier in ("gpu", "host", "disk"):
        t.run("generate", dst, t.job(reqs()), "-o", "out.jsonl", "--no-resume", "--weights", f"{tier}:100", gpu=Gpu(seed=1), rc=1).says("checksum", "layers.2", os.path.basename(path))
