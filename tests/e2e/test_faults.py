# SPDX-License-Identifier: Apache-2.0
"""Disks that fail: every read and write in turn gives a clear error or the right bytes, never a hang or a wrong result.
PS_FAULT is the fault store's specification (offload/store_fault.h)."""
import ctypes, errno, json, os, platform, resource, struct, subprocess

from harness import TOP, alone, cases, same, smoke, token_job

DISK = ["--weights", "disk:100", "--kv", "disk:100", "--hidden", "disk:100", "--gpu-batch-size", "2", "--num-gpu-batches", "2"]


def small_job():
    return token_job(257, n=4, longest=20, new=6)


def clean(t, out="out.jsonl"):
    for f in (out, out + ".part", out + ".journal"):
        if t.exists(f):
            os.remove(t.path(f))


def sweep_faults(t, spec, options, most, stride=1):
    """Fails the n-th I/O for n = 1, 2, ... until none is hit any more; the job must go on after each failure."""
    m, job = t.model("pre-f16"), t.job(small_job())
    want = t.generate(m, job, *options)
    hit, n = 0, 1
    while n <= most:
        clean(t)
        r = t.run("generate", m, job, "-o", "out.jsonl", *options, env={"PS_FAULT": spec % n}, rc=(0, 1), timeout=30)
        if r.rc == 0:
            same(t, t.records("out.jsonl"), want, f"{spec % n}, not hit")
            break
        hit += 1
        t.check(len(r.err.strip()) > 20, f"{spec % n}: nothing was said")
        t.check(not t.exists("out.jsonl"), "OUTPUT exists after an error")
        if n % 4 == 1:                  # the same command goes on later
            t.run("generate", m, job, "-o", "out.jsonl", *options)
            same(t, t.records("out.jsonl"), want, f"resumed after {spec % n}")
        n += stride
    t.check(hit > 0, "no fault was hit: is PS_FAULT read?")
    return r


@cases(read="read:%d:EIO", write="write:%d:EIO", full="write:%d:ENOSPC")
def test_every_io(t, spec):
    sweep_faults(t, spec, DISK, 120)


def test_every_io_h2o(t):
    sweep_faults(t, "read:%d:EIO", DISK + ["--kv-policy", "h2o", "--kv-heavy", "4", "--kv-recent", "4", "--io", "pread"], 200, 3)


def test_every_flip(t):
    """A bit that flips on its way from the disk is noticed."""
    sweep_faults(t, "flip:%d", DISK + ["--verify", "always"], 120)


@smoke
def test_first_faults(t):
    for spec in ("read:%d:EIO", "write:%d:ENOSPC", "flip:%d"):
        m, job = t.model("pre-f16"), t.job(small_job())
        want = t.generate(m, job, *DISK)
        for n in (1, 2, 5, 9):
            clean(t)
            if t.run("generate", m, job, "-o", "out.jsonl", *DISK, "--verify", "always", env={"PS_FAULT": spec % n}, rc=(0, 1), timeout=30).rc == 0:
                same(t, t.records("out.jsonl"), want, spec % n)


@cases(short2="short:2", short5="short:5", intr="intr:3", both="short:3,intr:2", reorder="reorder", delay="delay:2000,reorder", all="delay:500,reorder,short:2,intr:3")
def test_survived(t, spec):
    """What a kernel may do is survived: the right bytes."""
    m, job = t.model("pre-f16"), t.job(small_job())
    want = t.generate(m, job, *DISK)
    for io in ("uring", "pread"):
        for seed in (1, 2):
            same(t, t.generate(m, job, *DISK, "--io", io, env={"PS_FAULT": f"{spec},seed:{seed}"}), want, f"{spec}, {io}")


def test_bad_spec(t):
    t.run("generate", t.model("pre-f16"), t.job(small_job()), "-o", "out.jsonl", *DISK, env={"PS_FAULT": "bogus:1"}, rc=(1, 2)).says("bogus")


# ---------------------------------------------------------------- real full disks

class Small:
    """A file system of a given size, when we may mount one."""

    def __init__(self, t, size):
        self.path = t.path("small")
        os.mkdir(self.path)
        if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", self.path], capture_output=True).returncode:
            os.rmdir(self.path)
            t.skip("a file system cannot be mounted here")

    def __enter__(self):
        return self

    def grow(self, size):
        subprocess.run(["mount", "-o", f"remount,size={size}", self.path], check=True)

    def __exit__(self, *a):
        subprocess.run(["umount", self.path], check=True)
        os.rmdir(self.path)


@alone
def test_output_disk_full(t):
    job = token_job(257, n=60, new=40)
    m = t.model("pre-f16")
    want = t.generate(m, job, "--gpu-batch-size", 2, out="want.jsonl")
    with Small(t, "32k") as s:
        out = os.path.join("small", "out.jsonl")
        r = t.run("generate", m, t.path("in.jsonl"), "-o", out, "--gpu-batch-size", 2, rc=1).says("space", "out.jsonl")
        t.check(not t.exists(out), "OUTPUT exists")
        s.grow("4m")
        t.run("generate", m, t.path("in.jsonl"), "-o", out, "--gpu-batch-size", 2)
        same(t, t.records(out), want, "after room was made")


@alone
def test_spool_disk_full(t):
    """The requests, tokenised, lie beside OUTPUT: if there is no room, that is said, and not the line that was being read."""
    job = t.job([(f"r{i}", dict(prompt=[2] + [5] * 90, max_tokens=2)) for i in range(2000)])
    with Small(t, "64k") as s:
        t.write("small/out.jsonl", "somebody's\n")
        r = t.run("generate", t.model("pre-f16"), job, "-o", "small/out.jsonl", "--overwrite", rc=1).says("space", "small/out.jsonl", "temporary")
        t.check("line" not in r.err and "exists" not in r.err, f"says {r.err[-300:]!r}")
        t.eq((os.listdir(s.path), t.read("small/out.jsonl")), (["out.jsonl"], b"somebody's\n"), "what is left there")


@alone
def test_stage_disk_full(t):
    """What comes through a pipe may fill 90 % of what is free beside OUTPUT, not all of it."""
    with Small(t, "1m") as s:
        r = t.run("generate", t.model("pre-f16"), "-", "-o", "small/out.jsonl", data=b'{"prompt": [2, 5]}\n' * (1 << 16), rc=1).says("stdin", "staged", "90 %", "small/out.jsonl")
        t.eq(os.listdir(s.path), [], "what is left there")


@alone
def test_offload_disk_full(t):
    """Room is taken at start: too little is refused, with the file system named."""
    with Small(t, "64k") as s:
        r = t.run("generate", t.model("pre-f16"), t.job(token_job(257)), "-o", "out.jsonl", "--kv", "disk:100", "--hidden", "disk:100", "--offload-dir", s.path, rc=(1, 4))
        t.check("small" in r.err or "space" in r.err.lower() or "disk" in r.err.lower(), f"says {r.err[-300:]!r}")
        t.eq(os.listdir(s.path), [], "what is left there")


@alone
def test_convert_disk_full(t):
    with Small(t, "1m") as s:
        r = t.run("convert", t.hf("demo-opt"), os.path.join(s.path, "packed"), rc=1).says("space")
        t.check(not os.path.exists(os.path.join(s.path, "packed")), "there is something under DST")
        t.check(all(x in r.err for x in os.listdir(s.path)), f"left and not named: {os.listdir(s.path)}")


OPT, T4 = (os.path.join(TOP, "configs", *x) for x in (("models", "opt-125m.json"), ("hardware", "t4-gcp.json")))
PROBE = ["probe", "--quick", "--seconds", "1", "--threads", "2", "--host-mem", "256M", "--disk-space", "0", "-o"]


@alone
@cases(sweep=["plan", OPT, "--hardware", T4, "--sweep", "host-mem=8G,16G", "-o", "FILE"],
       sweep_json=["plan", OPT, "--hardware", T4, "--sweep", "host-mem=8G,16G", "--format", "json", "-o", "FILE"],
       bench=["bench", OPT, "--hardware", T4, "--requests", "4", "-o", "FILE"], bench_log=["bench", OPT, "--hardware", T4, "--requests", "4", "--log", "FILE"],
       probe=PROBE + ["FILE"],
       report=["generate", "MODEL", "in.jsonl", "-o", "out.jsonl", "--no-resume", "--report", "FILE"],
       trace=["generate", "MODEL", "in.jsonl", "-o", "out.jsonl", "--no-resume", "--trace", "FILE"])
def test_file_disk_full(t, args):
    """What is written in one piece is there whole or not at all: without room for it an older file stays as it was, and nothing else is left."""
    t.job(small_job())
    args = [{"MODEL": t.model("pre-f16"), "FILE": "small/file"}.get(a, a) for a in args]
    with Small(t, "256k") as s:
        t.write("small/file", "old\n")
        with open(t.path("small/fill"), "wb", buffering=0) as f:
            while True:
                try:
                    f.write(bytes(4096))
                except OSError as e:
                    t.eq(e.errno, errno.ENOSPC, "the disk is full")
                    break
        for there in (["file", "fill"], ["fill"]):
            t.run(*args, rc=1).says(args[-2], "small/file", "No space left on device")
            t.eq(sorted(os.listdir(s.path)), there, "files")
            if "file" in there:
                t.eq(t.read("small/file"), b"old\n", "the older file")
                os.remove(t.path("small/file"))
                f = open(t.path("small/fill"), "ab", buffering=0)
                f.write(bytes(4096))
                f.close()
        os.remove(t.path("small/fill"))
        t.run(*args)
        t.eq(os.listdir(s.path), ["file"], "files, when there is room")
        text = t.read("small/file").decode()
        t.check(text.count("\n") > 2 if args[0] == "plan" or "--log" in args else json.loads(text), "the file")


@cases(plan=["plan", OPT, "--hardware", T4], dry_run=["generate", "MODEL", "in.jsonl", "-o", "out.jsonl", "--dry-run"], tokenize=["tokenize", "MODEL", "long.txt"], probe=PROBE + ["-"],
       help=["--help"], help_generate=["generate", "--help"], usage=["plan", "--usage"])
def test_stdout_full(t, args):
    """What goes to stdout and cannot be written there, be it little or much, is an error that says why."""
    t.job(small_job())
    t.write("long.txt", "It was a dark night. " * 5000)
    with open("/dev/full", "wb") as full:
        p = subprocess.run([t.exe] + [t.model("demo-opt") if a == "MODEL" else a for a in args], cwd=t.dir, env=t.shared.env, stdout=full, stderr=subprocess.PIPE, timeout=60)
    err = p.stderr.decode()
    t.eq(p.returncode, 1, f"exit, {err[-300:]!r}")
    t.check("stdout" in err and ("No space left on device" in err or "is its disk full?" in err) and "Success" not in err, f"says {err[-300:]!r}")


def refuse(call, err):
    """For preexec_fn: a seccomp filter under which a system call fails."""
    def op(code, jt, jf, k):
        return struct.pack("HBBI", code, jt, jf, k)

    def fn():
        libc = ctypes.CDLL(None)
        code = op(0x20, 0, 0, 0) + op(0x15, 0, 1, call) + op(0x06, 0, 0, 0x00050000 | err) + op(0x06, 0, 0, 0x7fff0000)
        buf = ctypes.create_string_buffer(code, len(code))
        prog = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(buf))
        if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, prog, 0, 0):      # no new privileges; the filter
            os._exit(99)
    return fn


IO_URING = {"setup": 425, "enter": 426, "register": 427}        # the same on every architecture
@cases(**{f"{call}-{errno.errorcode[e]}": (nr, e) for call, nr in IO_URING.items() for e in (errno.EPERM, errno.ENOSYS)})
def test_no_io_uring(t, value):
    """A container's filter that refuses any part of io_uring: said, and read by threads instead."""
    m, job = t.model("pre-f16"), t.job(small_job())
    want = t.generate(m, job, *DISK)
    if "io_uring" in t.last.err:
        t.skip("no io_uring here at all")
    same(t, t.generate(m, job, *DISK, preexec_fn=refuse(*value)), want, "without io_uring")
    t.last.says("io_uring cannot be used")
    t.generate(m, job, *DISK, "--io", "uring", preexec_fn=refuse(*value), rc=1)
    t.last.says("io_uring cannot be used")
    t.check("io_uring works" not in t.run("doctor", rc=(0, 1), preexec_fn=refuse(*value)).out, "doctor says that it works")


def lock_most(limit):
    """For preexec_fn: so much memory may be locked, also by root (who has CAP_IPC_LOCK, which is given up here)."""
    def fn():
        ctypes.CDLL(None).prctl(24, 14, 0, 0, 0)    # refused to whoever is not root: such a user has not got it
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))
    return fn


@cases(disk=DISK, deep=DISK + ["--queue-depth", "64", "--prefetch", "3"])
def test_no_registered_buffers(t, options):
    """Where the memlock limit has room for a ring, but not for the buffers, io_uring works without registering them; where it has none
    for the ring, threads read. The same bytes; doctor says what is the matter."""
    m, job = t.model("pre-f16"), t.job(small_job())
    want = t.generate(m, job, *options)
    said = t.run("doctor", rc=(0, 1), preexec_fn=lock_most(64 << 10)).out
    if "io_uring works" not in said or "buffers cannot be registered" not in said:
        t.skip("a memlock limit of 64 KiB does not keep this kernel from registering buffers" if "io_uring works" in said else "no io_uring here")
    for line in ("the memlock limit is 64 KiB; buffers cannot be registered with the kernel", "ulimit -l unlimited"):
        t.eq(said.count(line), 1, line)
    for io in ([], ["--io", "uring"]):
        same(t, t.generate(m, job, *options, *io, preexec_fn=lock_most(64 << 10)), want, f"no buffer registered {io}")
        t.check("io_uring" not in t.last.err, f"says {t.last.err[-300:]!r}")

    said = t.run("doctor", rc=(0, 1), preexec_fn=lock_most(0)).out
    if "io_uring works" in said:
        return "this kernel does not count rings"
    for line in ("the memlock limit (ulimit -l) is too small for its ring", "To allow io_uring: a higher memlock limit",
                 "the memlock limit is 0 KiB; io_uring gets no memory", "ulimit -l unlimited"):
        t.eq(said.count(line), 1, line)
    same(t, t.generate(m, job, *options, preexec_fn=lock_most(0)), want, "no ring")
    t.eq(t.last.err.count("the memlock limit (ulimit -l) is too small for its ring"), 1, "said once")
    t.generate(m, job, *options, "--io", "uring", preexec_fn=lock_most(0), rc=1)
    t.last.says("io_uring cannot be used", "memlock")


def test_no_threads(t):
    """Where threads cannot be made, what to do is said: of computing, and of the queues."""
    m, job, clone3 = t.model("pre-f16"), t.job(small_job()), 435
    for options, what in ((("--io", "uring"), "2 --threads"), (("--io", "pread"), "an i/o thread")):
        t.run("generate", m, job, "-o", "out.jsonl", "--threads", 2, *options, rc=1, preexec_fn=refuse(clone3, errno.EAGAIN)).says(what, "ulimit -u")
        t.check(not t.exists("out.jsonl"), "there is a result")


def test_report_not_synced(t):
    """A report that is not on the disk is not there."""
    if platform.machine() != "x86_64":
        t.skip("the system call's number is x86-64's")
    m, job, fsync = t.model("pre-f16"), t.job(small_job()), 74
    t.generate(m, job)
    t.run("generate", m, job, "-o", "out.jsonl", "--report", "r.json", rc=1, preexec_fn=refuse(fsync, errno.EIO)).says("--report", "r.json")
    t.eq(sorted(os.listdir(t.dir)), ["in.jsonl", "out.jsonl"], "files")
    t.run("generate", m, job, "-o", "out.jsonl", "--report", "r.json")
    t.check(t.read("r.json"), "the report")


def test_every_call(t):
    """The n-th call of the whole program on a file fails, whichever file it is: an error or the right results, and the same command goes on.
    Every 7th: each takes a while where files are synced."""
    m, module = t.model("demo-opt"), t.preload("fail-io.so")
    reqs = [dict(prompt="It was", max_tokens=4, logprobs=2)] + [dict(prompt=[2, 3 + i], max_tokens=1 + i % 5) for i in range(7)]
    options = ["--threads", "1", "--host-mem", "40M", "--io", "pread", "--gpu-batch-size", "2", "--num-gpu-batches", "1"]
    want, job, n = t.generate(m, reqs, *options), t.path("in.jsonl"), 0
    while n < 2000:
        n += 7
        for f in set(os.listdir(t.dir)) - {"in.jsonl"}:
            os.remove(t.path(f))
        r = t.run("generate", m, job, "-o", "out.jsonl", *options, rc=(0, 1), timeout=20, env={"LD_PRELOAD": module, "FAIL_IO": f"{n}:{t.path('hit')}"})
        t.check(r.rc == 0 or r.err.strip(), f"call {n}: nothing was said")
        t.check("penstock: Input/output error" not in r.err.splitlines(), f"call {n}: what failed is not said")
        if not t.exists("hit"):
            break
        if r.rc and n % 2:
            t.run("generate", m, job, "-o", "out.jsonl", *options)
        if t.exists("out.jsonl"):
            same(t, t.records("out.jsonl"), want, f"call {n}")
    t.check(50 < n < 2000, f"{n} calls")
