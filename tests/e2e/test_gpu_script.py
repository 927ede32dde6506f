# SPDX-License-Identifier: Apache-2.0
"""bench/gpu.sh on the emulated GPU at tiny sizes: its parts, what it writes, restarts, time limits, refusals. Nothing it measures here means anything."""
import argparse, json, os, shutil, signal, subprocess, sys, time

from harness import TOP, Gpu, cases

sys.path.insert(0, os.path.join(TOP, "bench"))
import gpu, gpu_parts


def built(t):
    """The build folder; skips without the programs."""
    d = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(t.exe))))
    Gpu().program(t.exe)
    programs = gpu.find(d, True)
    if not all(programs.values()):
        t.skip(f"no {[k for k, v in programs.items() if not v]} in this build")
    return d


def start(t, *args, build=None, env=None):
    cmd = [os.path.join(TOP, "bench", "gpu.sh"), *args, "--build", build or built(t), "--emulated", "--tiny", "--out", t.path("out"), "--work", t.path("work")]
    return subprocess.Popen(cmd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**t.shared.env, **(env or {})})


def run(t, *args, rc=0, **kw):
    p = start(t, *args, **kw)
    out, err = p.communicate(timeout=120 * t.shared.slow_by)
    t.check(p.returncode == rc, f"exit {p.returncode}, wanted {rc}: {args}\n{out[-1500:]}{err[-1500:]}")
    return out + err


def result(t, part):
    return json.loads(t.read(f"out/gpu-{part}.json"))


def test_list(t):
    out = subprocess.run([os.path.join(TOP, "bench", "gpu.sh"), "list"], capture_output=True, text=True, check=True).stdout.splitlines()
    names = [p.name for p in gpu_parts.PARTS]
    t.eq([line.split()[0] for line in out], names, "parts")
    t.eq((len(set(names)), max(p.limit_s for p in gpu_parts.PARTS) <= 240), (len(names), True), "names, limits")
    groups = {p.group for p in gpu_parts.PARTS}
    t.check({"check", "sanitize", "rates", "bench-6.7b", "bench-30b"} == groups and not groups & set(names), f"{groups}")
    t.eq([p.name for p in gpu_parts.PARTS if p.sampled], [n for n in names if n.split("-")[-1] in gpu_parts.WINDOWS], "sampled")
    t.eq(names.count("bench-30b-512-full-early") + names.count("bench-6.7b-1024-h2o-late"), 2, "windows")


def test_measures(t):
    """A part brings what it needs; results, tables and the summary; a second call runs nothing."""
    out = run(t, "kernels", "stream", "bench-30b-512-h2o-midway")
    t.check(out.endswith("6 done, 0 failed, 0 skipped\n"), out[-300:])
    p = result(t, "probe")["values"]
    t.check(all(p[k] > 0 for k in ("h2d_gb_per_s", "d2h_gb_per_s", "both_each_way_gb_per_s", "hbm_read_gb_per_s", "gemm_gflops")), f"{p}")
    k = result(t, "kernels")
    t.eq([r["row"] for r in k["rows"]], ["linear_cuda", "attn_decode_cuda"], "rows")
    t.check(k["rows"][0]["cuBLAS_f32_over_ours"] > 0 and k["rows"][1]["without_scores"] > 0 and len(k["reach"]) == 2, f"{k['rows']}")
    s, w = result(t, "stream"), result(t, "bench-30b-512-h2o-midway")
    t.check(s["rows"][0]["weights"].startswith("host") and s["rows"][0]["attention_on_host"] == "8 of 8 slabs" and s["reach"][0]["got"] > 0, f"{s}")
    t.eq((w["sampled"], w["tiny"], w["emulated"], w["machine"]["gpu"], w["rows"][0]["KV"]), (True, True, True, "emulated sm_90", "h2o, 6 entries"), "window")
    t.check(w["rows"][0]["steps"] >= 3 and w["values"]["floor_s"] > 0, f"{w['rows']}")
    md = t.read("out/gpu-bench-30b-512-h2o-midway.md").decode()
    t.check("(`sampled`) (`tiny`) (`emulated`)" in md and "| step_s | " in md and "emulated sm_90" in md and "for CUDA 13.0" in md, md)
    md = t.read("out/gpu-summary.md").decode()
    t.check(md.count("| done |") == 6 and "reached: " in md.lower(), md)
    t.eq(run(t, "kernels", "probe").count("done before"), 2, "run again")
    t.eq(run(t, "model-30b", "--again").count("done before"), 0, "--again")
    shutil.rmtree(t.path("work"))                       # the models, too: made again for those that need them
    t.eq(run(t, "stream"), run(t, "stream"), "done, and done again")
    out = run(t, "stream", "--again")
    t.check(all(x in out for x in ("done before  probe", "done         model-6.7b", "done         stream")), out)


def sanitizer(t):
    """A compute-sanitizer that notes what it is asked, and takes its time, or finds something."""
    os.mkdir(t.path("bin"))
    path = t.write("bin/compute-sanitizer", f'#!/bin/sh\necho "$@" >>{t.path("asked")}\n[ -z "$SLOW" ] || exec sleep 30\nshift 4\n"$@" || exit $?\nexit ${{FINDS:-0}}\n')
    os.chmod(path, 0o755)
    return {"PATH": t.path("bin") + ":" + os.environ["PATH"]}


def test_restart_after_a_kill(t):
    """SIGKILL in the middle of a part: nothing runs on; the next call cleans up and does it whole."""
    env = sanitizer(t)
    p = start(t, "sanitize-synccheck", env={**env, "SLOW": "1"})
    folder, end = t.path("work/part-sanitize-synccheck"), time.monotonic() + 60
    while not t.exists("asked") and time.monotonic() < end:
        time.sleep(0.01)
    t.check(running_in(folder) and p.poll() is None, "not in the middle of it")
    p.kill()
    p.communicate()
    end = time.monotonic() + 5
    while running_in(folder) and time.monotonic() < end:
        time.sleep(0.02)
    t.eq((running_in(folder), t.exists("out/gpu-sanitize-synccheck.json")), ([], False), "left running, result")
    t.write("work/part-sanitize-synccheck/old", "")
    out = run(t, "sanitize-synccheck", env=env)
    t.check("done         sanitize-synccheck" in out and not t.exists("work/part-sanitize-synccheck"), out)
    t.eq([r["what"] for r in result(t, "sanitize-synccheck")["rows"]], ["a job, h2o, automatic", "ktest layernorm"], "rows")
    asked = t.read("asked").decode().splitlines()[1:]
    t.check(len(asked) == 2 and all(x.startswith("--tool synccheck --error-exitcode 9 ") for x in asked) and " generate " in asked[0], f"{asked}")


def running_in(folder):
    out = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/cwd") == folder:
                out.append(pid)
        except OSError:
            pass
    return out


NO = {"no GPU": ("sm=0", "no GPU can be used"), "driver too old": ("fail=cudaGetDeviceCount:1:35", "driver"), "GPU too old": ("sm=70", "7.5")}


@cases(**NO)
def test_no_usable_gpu(t, case):
    knobs, words = case
    out = run(t, "probe", rc=2, env={"CUDAEMU": knobs})
    t.check(words in out and not t.exists("out/gpu-probe.json"), out)


def test_refusals(t):
    d = built(t)
    t.check("there is no part nothing" in run(t, "nothing", rc=2), "unknown part")
    os.mkdir(t.path("empty"))
    t.check("no penstock there" in run(t, "probe", rc=2, build=t.path("empty")), "no programs")
    for key, src in gpu.find(d, True).items():          # all but the module
        if key != "module":
            shutil.copy(src, t.path("empty/" + gpu.PROGRAMS[key][0]))
    t.check("there is no penstock-cuda.so" in run(t, "probe", rc=2, build=t.path("empty")), "no module")
    p = subprocess.Popen([sys.executable, "-c", "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); time.sleep(60)", t.path("work/lock")],
                         stdout=subprocess.PIPE)
    p.stdout.readline()
    t.check("another gpu.sh" in run(t, "probe", rc=2), "lock")
    p.kill()
    p.communicate()


def test_packed(t):
    """The programs and their libraries alone, from another folder."""
    run(t, "pack", t.path("pack"))
    t.check(any(f.startswith("libjansson") for f in os.listdir(t.path("pack/lib"))) and not any(f.startswith("libc.") for f in os.listdir(t.path("pack/lib"))), "libraries")
    t.check("1 done, 0 failed" in run(t, "ktest", build=t.path("pack")), "ktest")


def test_sanitizer_finds(t):
    out = run(t, "sanitize-memcheck", rc=1, env={**sanitizer(t), "FINDS": "9"})
    t.check("failed       sanitize-memcheck" in out and "exit 9" in out and result(t, "sanitize-memcheck")["status"] == "failed", out)


def arguments(t, **more):
    for d in ("out", "work"):
        os.makedirs(t.path(d), exist_ok=True)
    return argparse.Namespace(out=t.path("out"), work=t.path("work"), build=t.path("b"), cuda_libs=[], emulated=False, tiny=False, again=False, within=None, identity="x",
                              machine=dict(gpu="G", compute_capability="9.0", gpu_gib=1.0, driver="1", pcie=None, driver_cuda="13.0", module_cuda="13.0", cpu="C", cpus=2), **more)


def test_a_part_ends(t):
    """In time, whatever it runs; a part that failed or was skipped is not done, and who needs it is skipped."""
    a = arguments(t)
    begin = time.monotonic()
    slow = gpu.Part("slow", "g", 1, "Slow", lambda c: c.sh(["sh", "-c", f"sleep 77 & echo $! >{t.path('pid')}; wait"]))
    r = gpu.run_part(a, slow, 0.5)
    t.check(r["status"] == "failed" and "no end after 0 s" in r["why"] and time.monotonic() - begin < 20, f"{r}")
    pid = int(t.read("pid"))
    end = time.monotonic() + 5
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    t.check(not alive(pid), "its child lives")
    heir = gpu.Part("heir", "g", 1, "Heir", lambda c: None, ("slow",))
    t.eq((gpu.is_done(a, slow), gpu.run_part(a, heir, 1, [slow])["why"]), (False, "slow is not done"), "needs")
    t.eq([p.name for p in gpu.with_needs([slow, heir], [heir], lambda p: True)], ["slow", "heir"], "order")
    t.eq(gpu.with_needs([slow, heir], [heir], lambda p: False), [heir], "a part that is done needs nothing")

    def bad(c):
        c.reach("a thing", 0.5, 0.9)
        c.reach("cost", 0.04, 0.05, at_most=True)
        c.sh(["sh", "-c", "echo told >&2; exit 3"])
    r = gpu.run_part(a, gpu.Part("bad", "g", 5, "Bad", bad), 5)
    t.check(r["status"] == "failed" and "exit 3" in r["why"] and "told" in r["why"], r["why"])
    md = t.read("out/gpu-bad.md").decode()
    t.check("NOT REACHED: a thing: 50.0 %, aimed at at least 90.0 %" in md and "- reached: cost: 4.0 %, aimed at at most 5.0 %" in md and "told" in md, md)
    ok = gpu.Part("ok", "g", 5, "Fine", lambda c: c.row(a=1.25, b=None, c="d"))
    gpu.run_part(a, ok, 5)
    t.check("| 1.25 | - | d |" in t.read("out/gpu-ok.md").decode() and gpu.is_done(a, ok), "table")
    ok.makes = lambda a: t.path("thing")
    t.check(not gpu.is_done(a, ok), "done without what it makes")
    t.write("thing", "")
    t.check(gpu.is_done(a, ok), "done")
    a.identity = "other programs"
    t.check(not gpu.is_done(a, ok), "done by other programs")


def alive(pid):
    try:
        return open(f"/proc/{pid}/stat").read().split()[2] != "Z"
    except OSError:
        return False


def test_timeline(t):
    """Steps, floors and the link's rate of a trace whose figures are known: two sweeps of prompts, then decode steps of 2 s, the last when a sequence has ended."""
    events = [{"name": "thread_name", "ph": "M", "tid": i, "args": {"name": n}} for i, n in enumerate(("compute", "host", "h2d", "d2h", "up"))]

    def task(tid, name, end, micro_batch=0, **args):
        events.append({"name": name, "ph": "X", "tid": tid, "ts": end * 1e6 - 1e5, "dur": 1e5, "args": {"layer": 0, "micro_batch": micro_batch, "bytes": 0, "flops": 0, **args}})
    for sweep, end in enumerate((10, 20, 22, 24, 26, 27)):
        if sweep < 2:
            task(0, "attn_prompt_cuda", end - 1, flops=3e12)
        task(2, "weights", end - 0.5, bytes=4e9)
        task(4, "KV", end - 0.5, bytes=4e8)                  # the same link; not weights
        task(0, "linear_cuda", end - 0.4, bytes=1e12)
        task(0, "sample_cuda", end - 0.2, 0)
        task(0, "sample_cuda", end, 1)
    json.dump({"traceEvents": events}, open(t.path("trace.json"), "w"))
    got = gpu_parts.timeline(t.path("trace.json"), dict(h2d_gb_per_s=4.0, d2h_gb_per_s=5.0, hbm_read_gb_per_s=2000.0, gemm_gflops=1000.0), 5)
    t.eq((got["step_s"], got["steps"], round(got["h2d_gb_per_s"], 6)), (2.0, 3, 2.0), "steps")
    # before the last prompt's end: 6 s of products, 0.5 of memory, 1.1 s of link; then 2.5 s of memory and 5.5 s of link
    t.eq((round(got["floor_s"], 6), got["floor_is"]), (12.0, "GPU then h2d"), "floor")


def test_differs(t):
    """Runs of one request: alike within tolerance up to a step that was too close to call."""
    def choice(tokens, lps, second=-5.0):
        return dict(token_ids=tokens, logprobs=dict(token_logprobs=lps, top_logprobs=[{"a": lp, "b": second} for lp in lps]))
    want = choice([1, 2, 3], [-0.1, -0.2, -0.3])
    t.eq(gpu_parts.differs(choice([1, 2, 3], [-0.1, -0.21, -0.3]), want, 0.03), None, "near")
    t.check("log-probability" in gpu_parts.differs(choice([1, 2, 3], [-0.1, -0.3, -0.3]), want, 0.03), "too far")
    t.check("token 1: 7, not 2" in gpu_parts.differs(choice([1, 7, 3], [-0.1, -0.2, -0.3]), want, 0.03), "another token")
    close = choice([1, 2, 3], [-0.1, -0.2, -0.3], second=-0.21)
    t.eq(gpu_parts.differs(choice([1, 7, 9], [-0.1, -0.2, -4]), close, 0.03), None, "too close to call")
    t.check("length" in gpu_parts.differs(choice([1, 2], [-0.1, -0.2]), want, 0.03), "length")
