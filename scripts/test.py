#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds and tests everything, in stages, two at a time; `./run.sh test` calls it.

    test.py [STAGE ...] [--list] [--quick] [--jobs N]

Without names all stages run; --quick is format, gcc and e2e. Build folders are build-ci/STAGE, logs build-ci/STAGE.log. The
last line is `N passed, N failed, N skipped`: the checks that the test programs themselves count (cmocka, ktest, tests/e2e), one for
a program that counts nothing, one for each build and the format check.
"""
import argparse, glob, json, os, re, shutil, subprocess, sys, threading, time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUT = os.path.join(TOP, "build-ci")
SAN_ENV = {
    "ASAN_OPTIONS": "detect_stack_use_after_return=1:protect_shadow_gap=0",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1",
    "ASAN_SYMBOLIZER_PATH": "/usr/bin/llvm-symbolizer-14",
}
TALLY = re.compile(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?")


class Stage:
    """A stage's commands write to its log; what they count is added up here."""

    def __init__(self, name, jobs):
        self.name, self.jobs = name, jobs
        self.passed = self.failed = self.skipped = 0
        self.log = open(os.path.join(OUT, name + ".log"), "w+")

    def sh(self, cmd, env=None, timeout=1500):
        self.log.write("$ " + " ".join(cmd) + "\n")
        self.log.flush()
        begin = self.log.seek(0, 2)
        try:
            rc = subprocess.run(cmd, cwd=TOP, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT,
                                env={**os.environ, **(env or {})}, timeout=timeout).returncode
        except subprocess.TimeoutExpired:
            self.log.write(f"\n{self.name}: no end after {timeout} s\n")
            rc = 124
        self.log.flush()
        self.log.seek(begin)
        text = self.log.read()
        self.log.seek(0, 2)
        return rc, text

    def step(self, cmd, **kw):
        """A command that counts as one check; raises when it fails."""
        rc, _ = self.sh(cmd, **kw)
        if rc:
            self.failed += 1
            raise StageEnd(f"exit {rc}: {' '.join(cmd)}")
        self.passed += 1

    def counted(self, cmd, **kw):
        """A command that prints its own tally last."""
        rc, text = self.sh(cmd, **kw)
        self.add(rc, text)

    def add(self, rc, text):
        p, f, s = tally(text)
        if rc == 77:
            s = max(s, 1)
        elif rc and not f:
            f = 1
        elif not rc and not p + f + s:
            p = 1
        self.passed, self.failed, self.skipped = self.passed + p, self.failed + f, self.skipped + s

    def build(self, *options, env=None, targets=()):
        """-> the build folder, set up anew when its options changed"""
        d = os.path.join(OUT, self.name)
        want = " ".join(options)
        mark = os.path.join(d, "options.txt")
        if not (os.path.exists(mark) and open(mark).read() == want):
            shutil.rmtree(d, ignore_errors=True)
            self.step(["meson", "setup", d, TOP, "--werror", *options], env=env)
            with open(mark, "w") as f:
                f.write(want)
        self.step(["ninja", "-C", d, f"-j{self.jobs}", *targets])
        return d

    def meson_test(self, d, want, setup=None, env=None, slow_by=None):
        """Runs the tests whose suites `want` accepts and adds up what they count."""
        tests = json.loads(subprocess.run(["meson", "introspect", "--tests", d], check=True, capture_output=True).stdout)
        names = [t["name"] for t in tests if want({s.split(":")[-1] for s in t["suite"]})]
        if not names:
            return
        base = f"log-{self.name}"
        for old in glob.glob(f"{d}/meson-logs/{base}*"):
            os.remove(old)
        rc, _ = self.sh(["meson", "test", "-C", d, "--no-rebuild", "--logbase", base, "--num-processes", str(self.jobs)]
                        + (["--setup", setup] if setup else []) + (["--timeout-multiplier", str(slow_by)] if slow_by else []) + names, env=env)
        logs = glob.glob(f"{d}/meson-logs/{base}*.json")
        results = [json.loads(line) for path in logs for line in open(path)]
        if rc and not results:
            self.failed += 1
        for r in results:
            text = (r.get("stdout") or "") + (r.get("stderr") or "")
            code = {"OK": 0, "EXPECTEDFAIL": 0, "SKIP": 77}.get(r["result"], 1)
            self.add(code, text)
            if code == 1:
                self.log.write(f"\n--- {r['name']}: {r['result']}, exit {r['returncode']}\n{text[-4000:]}\n")


class StageEnd(Exception):
    pass


def tally(text):
    """What a test program counted: ktest's and tests/e2e's last line, or cmocka's summaries."""
    found = TALLY.findall(text)
    if found:
        p, f, s = found[-1]
        return int(p), int(f), int(s or 0)
    return tuple(sum(int(n) for n in re.findall(rf"\[\s+{w}\s+\] (\d+) test\(s\)", text)) for w in ("PASSED", "FAILED", "SKIPPED"))


def penstock(d):
    for path in (f"{d}/penstock", f"{d}/engine/cli/penstock"):
        if os.path.exists(path):
            return path
    return None


def e2e(st, d, *options, env=None, timeout=1500):
    exe = penstock(d)
    if not exe or not os.path.exists(f"{TOP}/tests/e2e/run.py"):
        st.log.write("no penstock program in this build: no end-to-end tests\n")
        st.skipped += 1
        return
    st.counted([sys.executable, "tests/e2e/run.py", exe, "--jobs", str(st.jobs), *options], env=env, timeout=timeout)


# ---------------------------------------------------------------- the stages

def stage_format(st):
    files = subprocess.run(["git", "ls-files", "*.[ch]", "*.cu", "*.cuh"], cwd=TOP, check=True, capture_output=True, text=True).stdout.split()
    st.step(["clang-format-14", "--dry-run", "--Werror", *files])


def stage_gcc(st):
    """Everything, as users build it; kernels once more as scalar references only."""
    d = st.build()
    st.meson_test(d, lambda suites: True)
    for ktest in glob.glob(f"{d}/tests/**/ktest", recursive=True) + glob.glob(f"{d}/tests/ktest"):
        if os.path.isfile(ktest):
            st.counted([ktest, "--cpumask=0"])
            break


def stage_e2e(st):
    e2e(st, os.path.join(OUT, "gcc"))


def stage_valgrind(st):
    """The small suites; those with threads and io_uring are ASan's and TSan's, and so is the planner's, which takes minutes. Valgrind (3.19 at least) does not know that io_uring_enter()
    waits: it keeps its one lock meanwhile, so that the thread that is waited for never runs. Nor does it know cudaemu's fibers."""
    st.meson_test(os.path.join(OUT, "gcc"), lambda suites: "fast" in suites and not suites & {"kernels", "ktest", "offload", "plan", "sched", "search", "e2e", "cudaemu"},
                  setup="valgrind", slow_by=6)


def stage_clang(st):
    d = st.build("-Dcuda=disabled", env={"CC": "clang-14", "CXX": "clang++-14"})
    st.meson_test(d, lambda suites: "e2e" not in suites and ("fast" in suites or "cudaemu" not in suites))  # three minutes, once


def stage_asan(st):
    d = st.build("-Dcuda=disabled", "-Db_sanitize=address,undefined", "-Db_lundef=false", env={"CC": "clang-14", "CXX": "clang++-14"})
    st.meson_test(d, lambda suites: suites & {"fast", "fuzz"}, setup="sanitizer", env=SAN_ENV, slow_by=4)
    e2e(st, d, "--smoke", "--slow-by", "4", env=SAN_ENV)


def stage_kernels(st):
    """The vector kernels under sanitizers: gcc's, for clang takes minutes and gigabytes over them."""
    programs = ["tests/ps-ktest", "tests/kern-truth", "tests/kern-scratch"]
    d = st.build("-Dcuda=disabled", "-Db_sanitize=address,undefined", "-Dsanitize_kernels=true", env={"CC": "gcc", "CXX": "g++"}, targets=programs)
    for p in programs:
        st.counted([os.path.join(d, p)], env=SAN_ENV)


def stage_tsan(st):
    d = st.build("-Dcuda=disabled", "-Db_sanitize=thread", "-Db_lundef=false", env={"CC": "clang-14", "CXX": "clang++-14"})
    st.meson_test(d, lambda suites: suites & {"offload", "sched"}, setup="sanitizer", env=SAN_ENV, slow_by=4)
    e2e(st, d, "--threads-smoke", "--slow-by", "8", env=SAN_ENV)


def stage_nouring(st):
    d = st.build("-Dcuda=disabled", "-During=disabled")
    st.meson_test(d, lambda suites: "fast" in suites and not suites & {"kernels", "ktest", "e2e"})
    e2e(st, d, "--threads-smoke")


def stage_cuda(st):
    """The CUDA part for every GPU that nvcc knows, warnings as errors, and the table of what its kernels take. The stages but this one and gcc are
    built without it."""
    d = os.path.join(OUT, "gcc")
    if not shutil.which("nvcc") and not os.path.exists("/usr/local/cuda/bin/nvcc"):
        st.log.write("no nvcc\n")
        st.skipped += 1
        return
    st.step([sys.executable, "scripts/cuda_table.py", d, "--check", "--jobs", str(st.jobs)])


def stage_mutants(st):
    """A few of the changes that the tests must find: tests/mutants.py without --sample tries all."""
    d = os.path.join(OUT, "gcc")
    if not os.path.exists(f"{d}/tests/ps-ktest-cudaemu"):
        st.log.write("no emulation of CUDA in this build\n")
        st.skipped += 1
        return
    st.counted([sys.executable, "tests/mutants.py", d, "--sample", "--jobs", str(st.jobs)])


# name: (function, stages that must have ended before). Long ones stand first: they are started in this order.
STAGES = {
    "format": (stage_format, ()),
    "gcc": (stage_gcc, ()),
    "asan": (stage_asan, ()),
    "e2e": (stage_e2e, ("gcc",)),
    "tsan": (stage_tsan, ()),
    "valgrind": (stage_valgrind, ("gcc",)),
    "clang": (stage_clang, ()),
    "kernels": (stage_kernels, ()),
    "nouring": (stage_nouring, ()),
    "cuda": (stage_cuda, ("gcc",)),
    "mutants": (stage_mutants, ("gcc",)),
}


def run_stage(name, jobs, say):
    st = Stage(name, jobs)
    begin = time.monotonic()
    why = ""
    try:
        STAGES[name][0](st)
    except StageEnd as e:
        why = str(e)
    except Exception as e:  # a stage that breaks is a failure, not the end of the others
        why = f"{type(e).__name__}: {e}"
        st.failed += 1
    st.log.flush()
    with say:
        print(f"{'FAIL' if st.failed else 'ok'} {name}: {st.passed} passed, {st.failed} failed, {st.skipped} skipped "
              f"({time.monotonic() - begin:.0f} s)", flush=True)
        if st.failed:
            st.log.seek(0)
            tail = st.log.read().splitlines()[-60:]
            print("\n".join("    " + line for line in tail))
            if why:
                print(f"    {why}")
            sys.stdout.flush()
    return st


def run_all(names, lanes, jobs):
    """Starts each stage once those it waits for have ended, `lanes` at a time. A stage whose build failed fails its heirs too."""
    done, say, waiting, change = {}, threading.Lock(), list(names), threading.Condition()

    def lane():
        while True:
            with change:
                while True:
                    ready = [n for n in waiting if all(d in done or d not in names for d in STAGES[n][1])]
                    if ready or not waiting:
                        break
                    change.wait()
                if not waiting:
                    return
                name = ready[0]
                waiting.remove(name)
            st = run_stage(name, jobs, say)
            with change:
                done[name] = st
                change.notify_all()

    threads = [threading.Thread(target=lane) for _ in range(lanes)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return done


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("stages", nargs="*", metavar="STAGE")
    ap.add_argument("--list", action="store_true", help="name the stages")
    ap.add_argument("--quick", action="store_true", help="format, gcc and e2e only")
    ap.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="processes a stage may use (default: half the cores)")
    a = ap.parse_args()
    if a.list:
        print("\n".join(STAGES))
        return 0
    names = a.stages or (["format", "gcc", "e2e"] if a.quick else list(STAGES))
    unknown = [n for n in names if n not in STAGES]
    if unknown:
        ap.error(f"no stage {unknown[0]}; --list names them")
    os.makedirs(OUT, exist_ok=True)
    done = run_all(names, 2 if len(names) > 1 else 1, a.jobs)
    p, f, s = (sum(getattr(st, k) for st in done.values()) for k in ("passed", "failed", "skipped"))
    if not p + f:
        print("nothing ran")
        f = 1
    print(f"{p} passed, {f} failed, {s} skipped")
    return 1 if f else 0


if __name__ == "__main__":
    sys.exit(main())
