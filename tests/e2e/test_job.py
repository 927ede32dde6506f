# SPDX-License-Identifier: Apache-2.0
"""The job around the model: order, lock, journal, resume, signals, reports."""
import json, os, random, shutil, signal, subprocess, time

from harness import cases, same, smoke, threads, token_job


def long_job(t, n=40, new=40):
    """A job of some seconds on the demo model, its options and a way to interrupt it."""
    rng = random.Random(2)
    return t.job([(f"k{i}", dict(prompt=[2] + [rng.randrange(4, 4000) for _ in range(rng.randrange(1, 50))], max_tokens=rng.randrange(2, new), return_token_ids=True,
                                 temperature=0.8, seed=i)) for i in range(n)], "long.jsonl")


SLOW = ["--weights", "disk:100", "--gpu-batch-size", "1", "--num-gpu-batches", "2"]


def interrupt(t, job, *opts, sig=signal.SIGTERM, results=3, out="out.jsonl"):
    """Starts the job and sends `sig` when some results are there; -> the exit status."""
    p = t.start("generate", t.model("demo-opt"), job, "-o", out, *SLOW, *opts)
    end = time.monotonic() + 60 * t.shared.slow_by
    part = t.path(out + ".part")
    while p.poll() is None and time.monotonic() < end:
        if os.path.exists(part) and open(part, "rb").read().count(b"\n") >= results:
            break
        time.sleep(0.002)
    t.check(p.poll() is None, "the job ended before it could be interrupted")
    p.send_signal(sig)
    r = t.finish(p, 30)
    t.check(not t.exists(out) and t.exists(out + ".part") and t.exists(out + ".journal"), "state is kept")
    return r


@threads
@smoke
@cases(term=signal.SIGTERM, int=signal.SIGINT)
def test_signal_and_resume(t, sig):
    job = long_job(t)
    want = t.generate(t.model("demo-opt"), job, *SLOW, out="want.jsonl")
    r = interrupt(t, job, sig=sig)
    t.eq(r.rc, 130, "exit")
    kept = t.read("out.jsonl.part")
    t.check(kept.endswith(b"\n") and all(json.loads(x) for x in kept.splitlines()), "OUTPUT.part holds whole lines")
    got = t.generate(t.model("demo-opt"), job, *SLOW, fresh=False)
    same(t, got, want, "resumed")
    t.check(all(x in t.read("out.jsonl").splitlines() for x in kept.splitlines()), "finished lines stay as they were")
    t.eq(list(got), list(want), "order")


def test_second_signal(t):
    """The second signal does not wait for the sweep."""
    p = t.start("generate", t.model("demo-opt"), long_job(t, 60, 60), "-o", "out.jsonl", *SLOW)
    time.sleep(0.3 * t.shared.slow_by)
    p.send_signal(signal.SIGINT)
    time.sleep(0.02)
    if p.poll() is None:
        p.send_signal(signal.SIGINT)
    r = t.finish(p, 10)
    t.eq(r.rc, 130, "exit")
    t.run("generate", t.model("demo-opt"), t.path("long.jsonl"), "-o", "out.jsonl", *SLOW)


@cases(folder="", part="out.jsonl.part", journal="out.jsonl.journal", dump="kv.part")
def test_removed_while_running(t, name):
    """Nobody would see the results any more: the job stops at once, not at its end."""
    os.mkdir(t.path("o"))
    p = t.start("generate", t.model("demo-opt"), long_job(t, 200, 60), "-o", "o/out.jsonl", "--dump-kv", "o/kv", *SLOW)
    while p.poll() is None and not (t.exists("o/out.jsonl.part") and t.read("o/out.jsonl.part")):
        time.sleep(0.002)
    (os.remove if name else shutil.rmtree)(t.path(os.path.join("o", name)))
    r = t.finish(p)
    t.eq(r.rc, 1, "exit")
    r.says("was removed while the job ran", name or "o/out.jsonl.part")


def test_torn_line(t):
    job = long_job(t)
    want = t.generate(t.model("demo-opt"), job, *SLOW, out="want.jsonl")
    interrupt(t, job)
    whole = t.read("out.jsonl.part")
    for tail in (b'{"id": "half a li', b"\xff\xfe\x00", whole[:-1].rsplit(b"\n", 1)[-1][:40]):
        t.write("out.jsonl.part", whole + tail)
        same(t, t.generate(t.model("demo-opt"), job, *SLOW, fresh=False), want, "after a torn line")
        os.remove(t.path("out.jsonl"))
        interrupt(t, job)
        whole = t.read("out.jsonl.part")


def test_changed_since(t):
    """A change that could change results is refused and named; others are not."""
    job = long_job(t)
    want = t.generate(t.model("demo-opt"), job, *SLOW, out="want.jsonl")
    interrupt(t, job)
    m = t.model("demo-opt")
    for opts, words in ((["--kv-policy", "h2o"], ["kv-policy"]), (["--kv-dtype", "f32"], ["kv-dtype"]), (["--temperature", "0.5"], ["temperature"]),
                        (["--seed", "9"], ["seed"]), (["--max-tokens", "3"], ["max-tokens"]), (["--limit", "5"], ["limit"]), (["--stop", "x"], ["stop"])):
        t.run("generate", m, job, "-o", "out.jsonl", *SLOW, *opts, rc=(1, 2)).says(*words)
    t.run("generate", t.model("d80-f16"), job, "-o", "out.jsonl", *SLOW, rc=(1, 2)).says("model")
    shutil.copytree(m, t.path("other"))
    with open(t.path("other/vocab.json"), "a") as f:
        f.write(" ")
    t.run("generate", "other", job, "-o", "out.jsonl", *SLOW, rc=(1, 2)).says("tokenizer")
    shutil.rmtree(t.path("other"))
    text = open(job, "rb").read()
    t.write("long.jsonl", text.replace(b'"max_tokens": ', b'"max_tokens":  ', 1))
    t.run("generate", m, job, "-o", "out.jsonl", *SLOW, rc=(1, 2)).says("long.jsonl")
    t.write("long.jsonl", text)
    t.check(t.exists("out.jsonl.part") and not t.exists("out.jsonl"), "a refusal touches nothing")
    got = t.generate(m, job, "--weights", "host:100", "--gpu-batch-size", "4", "--threads", "1", "--io", "pread", fresh=False)
    same(t, got, want, "resumed with another placement")


def test_no_resume(t):
    job = long_job(t)
    interrupt(t, job)
    other = t.generate(t.model("demo-opt"), job, *SLOW, "--max-tokens", "3", "--no-resume", fresh=False)
    t.eq(len(other), 40, "records")


def test_no_resume_interrupted(t):
    """An OUTPUT that is complete stays until the new one is; without --no-resume, the interrupted attempt goes on."""
    job = long_job(t)
    t.generate(t.model("demo-opt"), job, *SLOW)
    before = t.read("out.jsonl")
    p = t.start("generate", t.model("demo-opt"), job, "-o", "out.jsonl", *SLOW, "--no-resume")
    while p.poll() is None and not (t.exists("out.jsonl.part") and t.read("out.jsonl.part").count(b"\n") > 3):
        time.sleep(0.002)
    p.send_signal(signal.SIGTERM)
    r = t.finish(p)
    t.eq(r.rc, 130, "exit")
    r.says("without --no-resume")
    t.eq(t.read("out.jsonl"), before, "OUTPUT of the run before")
    kept, n = t.read("out.jsonl.part"), t.read("out.jsonl.part").count(b"\n")
    t.run("inspect", "out.jsonl.part").says(f"records           {n}")
    os.rename(t.path("out.jsonl"), t.path("before"))
    t.run("inspect", "out.jsonl", rc=1).says("has not ended", f"{n} results", "out.jsonl.part")
    os.rename(t.path("before"), t.path("out.jsonl"))
    t.run("generate", t.model("demo-opt"), job, "-o", "out.jsonl", *SLOW)
    t.check(set(kept.splitlines()) <= set(t.read("out.jsonl").splitlines()), "what the attempt had is used")
    t.run("generate", t.model("demo-opt"), job, "-o", "out.jsonl", *SLOW).says("complete already")
    same(t, t.records("out.jsonl"), {k: v for k, v in ((json.loads(x)["custom_id"], json.loads(x)) for x in before.splitlines())}, "done anew")
    t.eq(sorted(x for x in os.listdir(t.dir) if x.startswith("out")), ["out.jsonl"], "files")


def test_complete_job_again(t):
    """The same command on a complete job says so and exits as the job did."""
    m = t.model("pre-f16")
    for body, rc in (({"prompt": [2, 5]}, 0), ({"prompt": [2, 999]}, 3)):
        job = t.job([{"prompt": [2, 7]}, body])
        t.generate(m, job, rc=rc)
        before, stat = t.read("out.jsonl"), os.stat(t.path("out.jsonl"))
        r = t.run("generate", m, job, "-o", "out.jsonl", "--report", f"again-{rc}.json", rc=rc)
        t.check("complete" in (r.err + r.out).lower(), f"says: {r.err[-300:]}")
        t.eq((t.read("out.jsonl"), os.stat(t.path("out.jsonl")).st_mtime_ns), (before, stat.st_mtime_ns), "OUTPUT is untouched")
        rep = json.loads(t.read(f"again-{rc}.json"))
        known = [x for k in ("time", "throughput", "links", "wait_s", "actual") for v in rep[k].values() for x in (v.values() if isinstance(v, dict) else [v])]
        t.eq({x for x in known if x is not None}, set(), "what the earlier run did is not known")
        t.eq((rep["job"]["requests"], rep["job"]["failed"]), (2, rc and 1), "what OUTPUT says is known")


def test_complete_and_damaged(t):
    """An OUTPUT of this job that lost a line, or a part of one, is not complete: refused, and done again when that is asked for."""
    m, job = t.model("pre-f16"), t.write("in.jsonl", "\n".join(["", *(json.dumps({"prompt": [2, 5 + i], "max_tokens": 3}) for i in range(60)), "  ", ""]))
    want, whole = t.generate(m, job), t.read("out.jsonl")
    lines = whole.splitlines(True)
    run = lambda *opts, rc: t.run("generate", m, job, "-o", "out.jsonl", *opts, rc=rc)
    for what, data, says in (("cut", whole[:-50], "cut short"), ("one byte", whole[:-1], "cut short"), ("the last line", b"".join(lines[:-1]), "59 results of 60"),
                             ("the first line", b"".join(lines[1:]), "59 results of 60"), ("more", whole + b"{", "cut short"), ("twice", b"".join(lines[1:] + lines[-1:]), "some twice")):
        for opts, rc in (([], 1), (["--dry-run"], 1), (["--limit", "59"], 1), (["--no-resume"], 0), (["--overwrite"], 0)):
            t.write("out.jsonl", data)
            r = run(*opts, rc=rc)
            if rc and "--limit" not in opts:
                r.says("out.jsonl", says, "damaged", "--no-resume")
            t.eq(t.read("out.jsonl") == data, rc != 0, f"{what}, {opts}: OUTPUT is left alone")
            if not rc:
                same(t, t.records("out.jsonl"), want, f"{what}, {opts}")
    t.write("out.jsonl", whole)
    run(rc=0).says("complete already: 60 results")
    t.write("out.jsonl", b"".join(reversed(lines)))
    run("--order", "completion", rc=0).says("complete already: 60 results")
    run(rc=1).says("order of completion", "--order", "--overwrite")
    t.eq(list(t.generate(m, job, "--overwrite", fresh=False)), list(want), "put in order when that is asked for")
    t.generate(m, job, "--limit", "7")
    run("--limit", "7", rc=0).says("complete already: 7 results")


def test_complete_and_its_journal(t):
    """Killed after OUTPUT got its name and before the journal went: what OUTPUT says counts."""
    m, job = t.model("pre-f16"), t.job([{"prompt": [2, 5 + i], "max_tokens": 1 + i % 4} for i in range(12)])
    run = lambda *opts, rc, env=None: t.run("generate", m, job, "-o", "out.jsonl", "--weights", "disk:100", *opts, rc=rc, env=env)
    run(rc=1, env={"PS_FAULT": "read:3:EIO"})
    journal = t.read("out.jsonl.journal")
    run("--order", "completion", rc=0)
    whole = t.read("out.jsonl")
    for opts, rc, says in (([], 1, "order of completion"), (["--order", "completion"], 0, "complete already")):
        t.write("out.jsonl.journal", journal)
        run(*opts, rc=rc).says(says)
        t.eq(t.read("out.jsonl"), whole, f"{opts}: OUTPUT")


def test_complete_and_files_asked(t):
    """Files that only a run can make are asked for when nothing is left to run: said, by the option's name."""
    m, job = t.model("pre-f16"), t.job([{"prompt": [2, 7]}])
    t.generate(m, job)
    run = lambda *opts: t.run("generate", m, job, "-o", "out.jsonl", *opts).says("complete already").err
    t.eq(run().count("warning"), 0, "warnings without such an option")
    for opts, there in ((["--dump-kv", "kv", "--trace", "tr"], False), (["--dump-kv", "in.kv", "--trace", "in.tr", "--report", "in.rep"], True)):
        for name in opts[1::2] if there else ():
            t.write(name, "old\n")
        err = run(*opts)
        for option, name in zip(opts[::2], opts[1::2]):
            line = [x for x in err.splitlines() if f"{option} {name}" in x]
            t.check(len(line) == 1 and "nothing runs" in line[0] and ("stays as it is" if there else "not written") in line[0], f"{option}: {err!r}")
            t.eq(t.exists(name) and t.read(name), there and b"old\n", name)
    t.check("--report" not in run("--report", "new.json") and json.loads(t.read("new.json")), "a report of what OUTPUT says")


def test_other_jobs_output(t):
    m = t.model("pre-f16")
    with open(t.path("large"), "w") as f:           # 1 TiB without a line end: its first byte is enough
        f.truncate(1 << 40)
    t.run("generate", m, t.job([{"prompt": [2, 7]}]), "-o", "large", rc=1).says("large exists", "--overwrite")
    t.run("inspect", "large", rc=1)
    t.write("out.jsonl", "somebody's data\n")
    job = t.job([{"prompt": [2, 7]}])
    t.run("generate", m, job, "-o", "out.jsonl", rc=(1, 2)).says("out.jsonl", "--overwrite")
    t.eq(t.read("out.jsonl"), b"somebody's data\n", "OUTPUT")
    t.run("generate", m, job, "-o", "out.jsonl", "--overwrite")
    t.eq(len(t.records("out.jsonl")), 1, "records")
    t.run("generate", m, t.job([{"prompt": [2, 8]}], "b.jsonl"), "-o", "out.jsonl", rc=(1, 2)).says("--overwrite")


FILES = ("in.jsonl", "out.jsonl", "out.jsonl.part", "out.jsonl.journal", "out.jsonl.sorted", "pipe", "null", "folder", "none/file")


@cases(report="--report", dump="--dump-kv", trace="--trace")
def test_files_apart(t, option):
    """No file of a job may be another one's, a pipe or a device, or stand where nothing can be written: that is said before anything is done."""
    m, job = t.model("pre-f16"), t.job([{"prompt": [2, 7]}])
    os.mkfifo(t.path("pipe"))
    os.mkdir(t.path("folder"))
    os.symlink("/dev/null", t.path("null"))
    os.symlink("in.jsonl", t.path("link"))
    before = t.read("in.jsonl")
    for name in FILES + ("link", t.path("in.jsonl"), "folder/../out.jsonl"):
        there = sorted(os.listdir(t.dir))
        t.run("generate", m, job, "-o", "out.jsonl", option, name, rc=(1, 2)).says(option, name)
        t.eq((sorted(os.listdir(t.dir)), t.read("in.jsonl")), (there, before), f"{option} {name}: files")
    t.run("generate", m, job, "-o", "out.jsonl", "--report", "x", "--dump-kv", "x.tmp", rc=2).says("--report", "--dump-kv", "same file")
    t.generate(m, job, option, t.path("file"))
    t.check(t.read("file"), "the file is written")


@cases(part=".part", journal=".journal", sorted=".sorted", output="")
def test_names_taken(t, suffix):
    """What stands under a name that the job needs, and is no file of its own, is refused and left alone."""
    m, job = t.model("pre-f16"), t.job(token_job(257, n=6))
    name = "out.jsonl" + suffix
    makers = {"folder": os.mkdir, "pipe": os.mkfifo, "link": lambda p: os.symlink("in.jsonl", p)}
    if suffix in (".part", ".journal"):
        makers["dangling link"] = lambda p: os.symlink("nowhere", p)
    for kind, make in makers.items():
        make(t.path(name))
        before = t.read("in.jsonl")
        t.run("generate", m, job, "-o", "out.jsonl", "--overwrite", "--no-resume", rc=2).says(name)
        t.check(t.exists(name) and not os.path.isfile(t.path(name)) or kind == "link", f"the {kind} is still there")
        t.eq((t.read("in.jsonl"), t.exists("nowhere")), (before, False), "INPUT and where the link points")
        (os.rmdir if kind == "folder" else os.remove)(t.path(name))
        for left in set(os.listdir(t.dir)) - {"in.jsonl"}:      # of a job that had begun
            os.remove(t.path(left))
    t.run("generate", m, job, "-o", "-", rc=2).says("-o -")
    for option in ("--report", "--dump-kv", "--trace"):
        t.run("generate", m, job, "-o", "out.jsonl", option, "-", rc=2).says(f"{option} -: it is renamed into place")
    t.eq(sorted(os.listdir(t.dir)), ["in.jsonl"], "files")


def test_ceilings(t):
    """0 is a ceiling like any other; more threads or requests than there can be are refused by the option's name; what has no effect is said."""
    m, job = t.model("pre-f16"), t.job([{"prompt": [2, 7]}])
    run = lambda *opts, rc: t.run("generate", m, job, "-o", "out.jsonl", "--no-resume", *opts, rc=rc)
    run("--host-mem", "0", rc=4).says("--host-mem", "smallest")
    run("--disk-space", "0", "--kv", "disk:100", rc=4).says("--disk-space")
    run("--disk-space", "0", rc=0)
    r = run("--offload-dir", "/proc", "--kv", "disk:100", rc=4).says("the smallest needs --disk-space 1M, and /proc has 0 MiB free",
                                                                     "with --host-mem", ", but /proc has 0 MiB free; --offload-dir says where else")
    t.check("It fits" not in r.err, f"what would not fit is said to: {r.err}")
    run("--offload-dir", "/proc", "--kv", "disk:100", "--disk-space", "4M", rc=4).says("warning", "--disk-space", "/proc has 0 MiB free")
    run("--offload-dir", "/proc", rc=0)
    run("--disk-space", "4000T", rc=0).says("warning", "--disk-space")
    for option in ("--threads", "--queue-depth"):
        for n in ("0", "100000", "4294967295", "4294967296"):
            run(option, n, rc=2).says(option, n)
    run("--numa", "900", rc=2).says("--numa", "900")
    run("--gpu-mem", "4G", rc=0).says("warning", "--gpu-mem")
    run("--host-mem", "4000T", rc=0).says("warning", "--host-mem")
    run("--limit", "0", "--overwrite", rc=0).says("--limit 0")


def test_closed_streams(t):
    """No file of the job takes the place of a stream that is closed: nothing is written into it."""
    m, job = t.model("pre-f16"), t.job(token_job(257, n=6))
    want = t.generate(m, job, out="want.jsonl")
    for closed in ("0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"):
        args = [t.exe, "generate", m, job, "-o", "out.jsonl", "--no-resume", "--host-mem", "4000T", "--gpu-mem", "1G"]     # warns
        p = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", *args], cwd=t.dir, env=t.shared.env, capture_output=True)
        t.eq(p.returncode, 0, closed)
        same(t, t.records("out.jsonl"), want, closed)
    p = subprocess.run(["sh", "-c", '"$@" 1>&-', "sh", t.exe, "inspect", m], cwd=t.dir, env=t.shared.env, capture_output=True)
    t.eq((p.returncode, b"stdout" in p.stderr), (1, True), "inspect without stdout")
    for args in (["--version"], ["--help"], ["inspect", m], ["doctor"]):
        with open("/dev/full", "w") as full:
            p = subprocess.run([t.exe, *args], cwd=t.dir, env=t.shared.env, stdout=full, stderr=subprocess.PIPE)
        t.eq((p.returncode, b"stdout" in p.stderr), (1, True), f"{args} to a full disk")


def test_lock(t):
    job = long_job(t, 60, 60)
    p = t.start("generate", t.model("demo-opt"), job, "-o", "out.jsonl", *SLOW)
    end = time.monotonic() + 20 * t.shared.slow_by
    while not t.exists("out.jsonl.journal") and time.monotonic() < end:
        time.sleep(0.005)
    try:
        for dry in ([], ["--dry-run"]):
            t.run("generate", t.model("demo-opt"), job, "-o", "out.jsonl", *SLOW, *dry, rc=1).says(str(p.pid))
        t.check(p.poll() is None, "the first went on")
    finally:
        p.send_signal(signal.SIGINT)
        t.finish(p, 30)


def test_damaged_state(t):
    """Journal and partial results, damaged in many ways: the right results or a clear refusal, never a wrong record."""
    job = long_job(t, 16, 20)
    want = t.generate(t.model("demo-opt"), job, *SLOW, out="want.jsonl")
    interrupt(t, job)
    journal, part = t.read("out.jsonl.journal"), t.read("out.jsonl.part")
    rng, refused = random.Random(1), 0
    for k in range(45):
        j, p = bytearray(journal), bytearray(part)
        kind = k % 9
        if kind == 0:
            j = j[:rng.randrange(len(j))]
        elif kind == 1:
            j[rng.randrange(len(j))] ^= 1 << rng.randrange(8)
        elif kind == 2:
            j = bytearray()
        elif kind == 3:
            p = p[:rng.randrange(len(p))]
        elif kind == 4:
            j += bytes(rng.randrange(256) for _ in range(200))
        elif kind == 5:
            p += p[:p.index(b"\n") + 1]             # a record twice
        elif kind == 6:
            p = bytearray(b"\n") + p
        elif kind == 7:
            p[rng.randrange(len(p))] ^= 1 << rng.randrange(7)
        else:
            p += b'{"custom_id": "stranger", "id": "x", "response": null, "error": null}\n'
        t.write("out.jsonl.journal", bytes(j))
        t.write("out.jsonl.part", bytes(p))
        if t.exists("out.jsonl"):
            os.remove(t.path("out.jsonl"))
        r = t.run("generate", t.model("demo-opt"), job, "-o", "out.jsonl", *SLOW, rc=(0, 1, 2))
        t.check(kind != 7 or r.rc and "out.jsonl.part" in r.err, f"damage {k}: a bit of a result that flipped was not told: {r.err[-300:]}")
        if r.rc:
            refused += 1
            t.check(not t.exists("out.jsonl") and r.err.strip(), "a refusal says why and makes no result")
        else:
            same(t, t.records("out.jsonl"), want, f"damage {k}")
            t.eq(len(t.read("out.jsonl").splitlines()), len(want), f"lines after damage {k}")


def test_order(t):
    m, job = t.model("pre-f16"), token_job(257, n=20)
    a = t.generate(m, job, "--gpu-batch-size", 4, "--num-gpu-batches", 1)
    t.eq(list(a), [k for k, _ in job], "input order")
    b = t.generate(m, job, "--gpu-batch-size", 4, "--num-gpu-batches", 1, "--order", "completion")
    same(t, b, a, "completion order")
    t.check(list(b) != list(a), "completion order is another one here")


def test_files_left(t):
    t.generate(t.model("pre-f16"), token_job(257, n=4), "--kv", "disk:100", "--hidden", "disk:100")
    t.eq(sorted(os.listdir(t.dir)), ["in.jsonl", "out.jsonl"], "the folder")
    os.mkdir(t.path("off"))
    t.generate(t.model("pre-f16"), token_job(257, n=4), "--kv", "disk:100", "--offload-dir", t.path("off"))
    t.eq(os.listdir(t.path("off")), [], "--offload-dir")
    p = t.start("generate", t.model("demo-opt"), long_job(t), "-o", "x.jsonl", *SLOW, "--kv", "disk:100", "--offload-dir", t.path("off"))
    seen = set()
    while p.poll() is None:
        seen |= set(os.listdir(t.path("off")))
    t.eq((t.finish(p).rc, seen), (0, set()), "its file never has a name, for a kill to leave behind")


def test_offload_dir(t):
    """A missing one is made by the run, not by a dry run; what cannot be one is refused at once, whether or not anything goes there."""
    m, job = t.model("pre-f16"), t.job(token_job(257, n=4))
    run = lambda where, *more, rc=0: t.run("generate", m, job, "-o", "out.jsonl", "--offload-dir", where, *more, rc=rc)
    before = sorted(os.listdir(t.dir))
    t.write("file", "x")
    for more in ([], ["--kv", "disk:100"], ["--dry-run"], ["--dry-run", "--kv", "disk:100"]):
        run("file", *more, rc=1).says("--offload-dir file: it is no folder")
        run("file/new", *more, rc=1).says("--offload-dir file/new: the folder file is not there")
        run("no/new/", *more, rc=1).says("--offload-dir no/new/: the folder no is not there")
        if "--dry-run" in more:
            run("new", *more)
            run("new/", *more)
        t.eq(sorted(os.listdir(t.dir)), sorted([*before, "file"]), f"files after {more}")
    run("new/", "--kv", "disk:100")
    t.eq((os.listdir(t.path("new")), t.exists("out.jsonl")), ([], True), "the folder that was made")
    run("new", "--dry-run", "--no-resume")
    run(t.path("other"), "--no-resume")
    t.eq(os.listdir(t.path("other")), [], "a folder that nothing went to")


REPORT = {
    "version": str, "machine": dict, "model": ["name", "bytes", "dtype", "hash"], "job": ["requests", "prompt_tokens", "generated_tokens", "failed"],
    "plan": dict, "time": ["load", "prefill", "decode", "total"], "throughput": ["prefill", "decode", "total", "requests_per_s"],
    "links": dict, "wait_s": ["weights", "kv", "compute", "tokenizer", "output"], "memory": dict, "kv": dict, "predicted": None, "actual": None, "projected": bool,
}


@smoke
def test_report(t):
    job = token_job(257, n=9) + [("bad", {"prompt": [2, 999]})]
    recs = t.generate(t.model("pre-f16"), job, "--report", t.path("r.json"), "--weights", "host:50,disk:50", "--kv", "disk:100", "--kv-policy", "h2o",
                      "--kv-budget", "20%", rc=3)
    r = json.loads(t.read("r.json"))
    for k, kind in REPORT.items():
        t.check(k in r, f"report has no {k}")
        if isinstance(kind, list):
            for f in kind:
                t.check(f in r[k], f"report has no {k}.{f}")
        elif kind:
            t.check(isinstance(r[k], kind), f"{k} is {r[k]}")
    ok = [x["response"]["body"]["usage"] for x in recs.values() if x["error"] is None]
    t.eq((r["job"]["requests"], r["job"]["failed"]), (10, 1), "requests, failed")
    t.eq(r["job"]["prompt_tokens"], sum(u["prompt_tokens"] for u in ok), "prompt tokens")
    t.eq(r["job"]["generated_tokens"], sum(u["completion_tokens"] for u in ok), "generated tokens")
    t.check(r["time"]["total"] > 0 and r["throughput"]["decode"] > 0, "rates")
    t.eq(r["projected"], False, "projected")
    t.check(r["links"]["disk_read"]["bytes"] > 0, "bytes read")


def test_report_after_resume(t):
    """Report, exit code and dump cover the whole job."""
    job = long_job(t)
    lines = open(job).read() + json.dumps({"prompt": [99999]}) + "\n"
    t.write("long.jsonl", json.dumps({"prompt": ""}) + "\n" + lines)
    interrupt(t, job, "--dump-kv", "kv.jsonl")
    recs = t.generate(t.model("demo-opt"), job, *SLOW, "--dump-kv", "kv.jsonl", "--report", t.path("r.json"), fresh=False, rc=3)
    r = json.loads(t.read("r.json"))
    ok = [x["response"]["body"]["usage"] for x in recs.values() if x["error"] is None]
    t.eq((r["job"]["requests"], r["job"]["failed"], r["job"]["generated_tokens"]), (42, 2, sum(u["completion_tokens"] for u in ok)), "job")
    rows = [json.loads(x) for x in t.read("kv.jsonl").splitlines()]
    t.eq(sorted({x["custom_id"] for x in rows}), sorted(k for k, x in recs.items() if x["error"] is None), "ids in the dump")
    t.eq(len(rows), 6 * 40, "rows in the dump: a layer each, none twice")


def test_dump_kv(t):
    job = [("a", dict(prompt=[2] + list(range(20, 50)), max_tokens=10, ignore_eos=True)), ("b", dict(prompt=[2, 5], max_tokens=2, ignore_eos=True))]
    for policy, n in ((["--kv-policy", "h2o", "--kv-heavy", "4", "--kv-recent", "4"], 8), (["--kv-policy", "local", "--kv-recent", "6"], 6), (["--kv-policy", "full"], 40)):
        t.generate(t.model("pre-f16"), job, *policy, "--dump-kv", t.path("kv.jsonl"), "--overwrite")
        rows = [json.loads(x) for x in t.read("kv.jsonl").splitlines()]
        t.eq(len(rows), 6, "rows")
        for r in rows:
            fed = {"a": 40, "b": 3}[r["custom_id"]]
            t.eq(r["tokens_fed"], fed, "tokens_fed")
            t.eq(len(r["kept"]), 3, "heads")
            for head in r["kept"]:
                t.eq((head, len(head)), (sorted(set(head)), min(n, fed)), "kept positions")
            t.eq(r["scores"] is not None, "h2o" in policy, "scores")


def test_budget_share(t):
    """A share is of the longest valid line, rounded half up; odd budgets give the heavy part the smaller half."""
    job = [dict(prompt=[2] * 40, max_tokens=35, ignore_eos=True), dict(prompt=[2], max_tokens=80, ignore_eos=True), dict(prompt=[999], max_tokens=100)]
    for share, want in (("20%", 16), ("1%", 1), ("50%", 41), ("13", 13)):   # of 81: 16.2, 0.81, 40.5
        t.generate(t.model("pre-f16"), job, "--kv-policy", "h2o", "--kv-budget", share, "--dump-kv", t.path("kv.jsonl"), "--overwrite", rc=3)
        rows = [json.loads(x) for x in t.read("kv.jsonl").splitlines() if b'"r0"' in x]
        t.eq({len(h) for r in rows for h in r["kept"]}, {want}, f"entries kept with {share}")
    p = t.run("generate", t.model("pre-f16"), t.path("in.jsonl"), "-o", "x.jsonl", "--kv-policy", "h2o", "--dry-run", rc=None)
    t.eq(p.rc in (0, 3), True, "--dry-run")


def test_sink_default(t):
    t.generate(t.model("pre-f16"), [dict(prompt=[2] * 60, max_tokens=41, ignore_eos=True)], "--kv-policy", "sink", "--dump-kv", t.path("kv.jsonl"))
    for x in t.read("kv.jsonl").splitlines():
        for head in json.loads(x)["kept"]:
            t.eq(head, [0, 1, 2, 3] + list(range(84, 100)), "20 % of 101, four of them sinks")


def test_trace(t):
    t.generate(t.model("pre-f16"), token_job(257, n=5), "--trace", t.path("t.json"), "--weights", "disk:100")
    d = json.loads(t.read("t.json"))
    ev = d["traceEvents"] if isinstance(d, dict) else d
    t.check(sum("ts" in e for e in ev) > 20, "events")


@cases(trace=("--trace", "f.tmp"), report=("--report", "f.tmp"), dump=("--dump-kv", "f.part"), sorted=("--limit", "out.jsonl.sorted"))
def test_left_by_a_killed_run(t, value):
    """What a run that was killed, or lost power, left under the name of a file that is renamed in the end is replaced; what is somebody's is refused and stays."""
    option, helper = value
    m, job = t.model("pre-f16"), token_job(257, n=6)
    file = "2" if option == "--limit" else t.path("f")
    t.generate(m, job, option, file)
    own = t.read("out.jsonl" if option == "--limit" else "f")
    for left in (b"", own[:7], own[:len(own) // 2], b"\0" * 5000):
        t.write(helper, left)
        t.generate(m, job, option, file)
        t.check(not t.exists(helper), f"left again, after {left[:20]!r}")
    for mine in (b"my notes\n", b"{}", b'{"mine": 1}\n'):
        t.write(helper, mine)
        for more in ([], ["--dry-run"], ["--overwrite", "--no-resume"]):
            t.run("generate", m, t.path("in.jsonl"), "-o", "out.jsonl", option, file, *more, rc=2).says(helper, "move it away")
        t.eq(t.read(helper), mine, "somebody's file")


def test_dry_run(t):
    r = t.run("generate", t.model("demo-opt"), t.job([{"prompt": "It was"}]), "-o", "out.jsonl", "--dry-run")
    t.check(len(r.out + r.err) > 200, "prints the plan")
    t.eq(sorted(os.listdir(t.dir)), ["in.jsonl"], "loads and writes nothing")


@cases(valid=(["[2, 5]"], 0, []), some=(["[2, 5]", "3", "[2, 6]"], 3, ["1 of 3 requests gets an error record, the first that of line 2"]),
       none=(["3", "4"], 3, ["2 of 2 requests get an error record, the first that of line 1", "no request is valid"]),
       one=(["3"], 3, ["1 of 1 request gets an error record", "no request is valid"]), empty=([], 0, ["holds no request"]))
def test_dry_run_exit(t, value):
    """A dry run ends as the run would, and says of wrong lines what that says."""
    prompts, rc, says = value
    job = t.write("in.jsonl", "".join('{"prompt": %s, "max_tokens": 2}\n' % p for p in prompts))
    for dry in (["--dry-run"], []):
        r = t.run("generate", t.model("pre-f16"), job, "-o", "out.jsonl", *dry, rc=rc).says(*(says if dry else [s for s in says if "no request is valid" not in s]))
        t.check(not dry or ("block" in r.out) == ("[2, 5]" in prompts), "the plan")
        t.check(not dry or os.listdir(t.dir) == ["in.jsonl"], "a dry run writes nothing")
    t.check(not prompts or f"{len(prompts)} result{'s' * (len(prompts) > 1)} in out.jsonl" in r.err, f"says {r.err[-200:]!r}")


def test_one_of_each(t):
    """One of a thing is told in the singular."""
    m, job, shape = t.model("pre-f16"), t.job([{"prompt": [2], "max_tokens": 1}, {"prompt": 3}]), ["--gpu-batch-size", "1", "--num-gpu-batches", "1", "--prefill-tokens", "1"]
    t.run("generate", m, job, "-o", "out.jsonl", *shape, "--dry-run", rc=3).says("1 slot x 1 micro-batch, at most 1 prompt token a sweep, 2 rows at a time")
    t.run("generate", m, job, "-o", "out.jsonl", *shape, "--host-mem", "1K", rc=4).says("1 slot in 1 micro-batch, 1 prompt token a sweep")
    t.run("generate", m, job, "-o", "out.jsonl", rc=3).says("2 results in out.jsonl (1 of them an error): 1 prompt and 1 generated token in")


def files(t):
    return {name: t.read(name) for name in os.listdir(t.dir)}


def test_dry_run_answers(t):
    """What stands at OUTPUT and beside it is refused, or told, by a dry run as by the run, and the dry run changes nothing there."""
    demo, job, m = t.model("demo-opt"), long_job(t, 16, 20), t.model("pre-f16")
    interrupt(t, job)
    begun = {s: t.read("out.jsonl" + s) for s in (".journal", ".part")}
    os.remove(t.path("out.jsonl.journal"))
    os.remove(t.path("out.jsonl.part"))
    other = t.job([{"prompt": [2, 7]}, {"prompt": 3}])
    flipped = bytearray(begun[".part"])
    flipped[5] ^= 4
    torn = begun[".journal"] + b'{"run": 2, "su'
    states = [("somebody's data", m, other, {"": b"somebody's data\n"}, [], 1, "--overwrite"), ("to be replaced", m, other, {"": b"somebody's data\n"}, ["--overwrite"], 3, ""),
              ("another job's journal", m, other, begun, [], 1, "another job"), ("to be discarded", m, other, begun, ["--no-resume"], 3, ""),
              ("a part file alone", m, other, {".part": begun[".part"]}, [], 1, "without its journal"), ("no journal", m, other, {".journal": b"no journal\n"}, [], 1, "line 1"),
              ("dump wanted later", demo, job, begun, [*SLOW, "--dump-kv", "kv.jsonl"], 1, "--dump-kv"), ("damage", demo, job, {**begun, ".part": bytes(flipped)}, SLOW, 1, "damaged"),
              ("a torn journal", demo, job, {**begun, ".journal": torn}, SLOW, 0, ""), ("complete", m, other, None, [], 3, "complete already"),
              ("complete, to be done anew", m, other, None, ["--no-resume"], 3, "")]
    t.generate(m, other, rc=3)
    results = {"": t.read("out.jsonl")}
    for what, model, of, there, opts, rc, says in states:
        for name in [x for x in os.listdir(t.dir) if x.startswith("out.jsonl")]:
            os.remove(t.path(name))
        for suffix, data in (results if there is None else there).items():
            t.write("out.jsonl" + suffix, data)
        before = files(t)
        dry = t.run("generate", model, of, "-o", "out.jsonl", *opts, "--dry-run", rc=rc).says(says)
        t.eq(files(t), before, f"{what}: files after a dry run")
        run = t.run("generate", model, of, "-o", "out.jsonl", *opts, rc=rc).says(says)
        t.check(rc != 1 or dry.err == run.err, f"{what}: {dry.err!r}, and the run {run.err!r}")
    t.run("generate", m, other, "-o", "none/out.jsonl", "--dry-run", rc=1).says("none")


def test_progress(t):
    r = t.run("generate", t.model("demo-opt"), long_job(t), "-o", "a.jsonl", *SLOW, "--progress", "none")
    quiet = len(r.err)
    r = t.run("generate", t.model("demo-opt"), t.path("long.jsonl"), "-o", "b.jsonl", *SLOW, "--progress", "plain")
    t.check(len(r.err) >= quiet and "\x1b" not in r.err and r.out == "", "plain progress is lines on stderr")
