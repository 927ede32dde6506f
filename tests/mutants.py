#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mutants of the product: each has one statement less that orders things on a GPU (an event, a barrier, a pin, a use of a buffer), and
the tests must find it.

    mutants.py BUILD [--list] [--sample] [--only REGEX]... [--jobs N] [--timeout S] [--json FILE [--for S]] [--table FILE]

BUILD is a build folder that is up to date (gcc, no sanitizer). A changed file lies beside the tree, only what is made of it is compiled,
and a test's objects are linked with these in front of its libraries: the tree and BUILD stay as they are. A mutant is found if one of
its tests fails, or does not end in time. --sample takes the few that CI tries, so that this script and the tests keep up.
All take minutes: results are put into --json's FILE as they come, what stands there of the same change and the same tests is not tried again,
and after --for's seconds none is begun. --table is written once none is left.
A mutant that no test can find stands in EXPLAINED, with the reason. Exit 1: one survived that does not, or one of EXPLAINED was found.
Exit 3: neither, but some are left. The last line is `N passed, N failed, N skipped`: found, survived, explained.
"""
import argparse, concurrent.futures, glob, hashlib, json, math, os, re, shlex, shutil, signal, subprocess, sys, tempfile, threading, time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KTEST = "ps-ktest-cudaemu"


def ktest(*ops):
    return [(KTEST, f"--op={op}", f"--variant={op}_cuda") for op in ops]


class Kind:
    """files: globs; cuts: (regex, what stands there instead); tests: of a file, or of every file."""

    def __init__(self, files, cuts, tests):
        self.files, self.cuts, self.tests = files, [(re.compile(a), b) for a, b in cuts], tests

    def tests_of(self, path):
        return self.tests[os.path.basename(path)] if isinstance(self.tests, dict) else self.tests


KERNEL_TESTS = {
    "attn_decode.cu": ktest("attn_decode"), "attn_prompt.cu": ktest("attn_prompt"), "kv.cu": ktest("kv_compact", "kv_replay"),
    "linear.cu": ktest("linear"), "linear_tile.cu": ktest("linear"), "sample.cu": ktest("sample"),
    "cu.cuh": ktest("layernorm", "sample"), "select.cuh": ktest("kv_compact", "sample"),
}
DEVICE = [("ps-dev-cuda",), ("ps-pinned",)]
KINDS = {
    # A barrier that also counts still counts, for the thread alone.
    "barrier": Kind(["kernels/cuda/*.cu", "kernels/cuda/*.cuh"],
                    [(r"^(\s*)(__syncthreads|__syncwarp|__threadfence)\([^;]*\);", r"\1;"), (r"__syncthreads_or\(", "(")], KERNEL_TESTS),
    "event": Kind(["offload/dev_cuda.c"],
                  [(r"\border\(g, q, t\)", "0"), (r"g->api->event_(put|wait|sync)\(.*\)(?=;| :)", "0"), (r"^(\s*)wait_for_needs\(.*\);", r"\1;"),
                   (r"g->api->sync\(.*\)(?=;)", "0")], DEVICE),
    "pin": Kind(["offload/dev_cuda.c", "offload/pinned.c"], [(r"\b(g|p)->api->(pin|unpin)\([^()]*\)(?=;| < 0)", "0")], DEVICE),
    # Lists of uses in engine/sched: an entry that names no buffer.
    "use": Kind(["engine/sched/*.c"], [(r"\{ [^{}]+, (true|false) \}", "{ NULL, false }"), (r"(?<!use )\bin\(a, \w+\)", "{ NULL, false }")],
                [("ps-sched-order",)]),
}
# name: why no test finds it
EXPLAINED = {
    "use:attention.c:decode_far#4": "positions and scores come down before q, k, v, in the same queue; and what comes down after it waits for the slab",
    "use:kvlog.c:to_logs#2": "beside a GPU logs are written and read by HOST alone",
    "use:pass.c:step_norm#1": "a layer's vectors lie in one chunk, which the other vector names",
    "use:pass.c:step_norm#2": "the same",
    "use:pass.c:step_linear#3": "the residual is what is written, too",
    "event:dev_cuda.c:cuda_close#1": "cudaFree, soon after, waits for all work of the device, too, and the emulation knows that of it; we do not lean on it",
}
# What CI tries, quick ones: of each the first that fits.
SAMPLE = ["event:dev_cuda.c:order#", "event:dev_cuda.c:issue_main#", "pin:dev_cuda.c:pin_found#", "barrier:kv.cu:kv_compact#",
          "barrier:select.cuh:ps_rank#", "use:pass.c:step_linear#.*in.buf"]


class Mutant:
    def __init__(self, kind, path, line, text, new_text, function, nth, tests=None):
        self.kind, self.path, self.line, self.text, self.new_text = kind, path, line, text, new_text
        self.function, self.name = function, f"{kind}:{os.path.basename(path)}:{function}#{nth}"
        self.tests = tests or KINDS[kind].tests_of(path)
        self.result, self.by, self.seconds = None, "", 0.0

    def __str__(self):
        return f"{self.path}:{self.line} {self.name}: {self.text.strip()}"


def function_at(lines, i):
    """The name in the last line before line i that begins a definition."""
    while i >= 0:
        if re.match(r"[A-Za-z_]", lines[i]) and not lines[i].rstrip().endswith(";"):
            names = [n for n in re.findall(r"(\w+)\(", lines[i]) if not n.startswith("__")]
            if names:
                return names[0]
        i -= 1
    return "file"


def mutants_of(kind, path):
    with open(os.path.join(TOP, path)) as f:
        text = f.read()
    code = re.sub(r"/\*.*?\*/|//[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S).split("\n")
    lines, count, found = text.split("\n"), {}, []
    for i, line in enumerate(lines):
        places = {m.span(): m.expand(to) for pattern, to in KINDS[kind].cuts for m in pattern.finditer(code[i])}
        for (a, b), to in sorted(places.items()):
            new = list(lines)
            new[i] = line[:a] + to + line[b:]
            fn = function_at(lines, i)
            count[fn] = count.get(fn, 0) + 1
            found.append(Mutant(kind, path, i + 1, line, "\n".join(new), fn, count[fn]))
    return found


def all_mutants():
    found = []
    for kind, k in KINDS.items():
        of_kind = [m for g in k.files for p in sorted(glob.glob(os.path.join(TOP, g))) for m in mutants_of(kind, os.path.relpath(p, TOP))]
        if not of_kind:
            raise SystemExit(f"mutants.py: nothing of the kind '{kind}' is found: its regular expressions are out of date")
        found += of_kind
    return found


class Build:
    """How BUILD makes its objects and tests."""

    def __init__(self, path):
        self.path = os.path.abspath(path)
        with open(os.path.join(self.path, "compile_commands.json")) as f:
            self.compile = [c for c in json.load(f) if "ps_kcuda_fast" not in c["output"]]
        self.link, self.sums = {}, {}

    def sum_of(self, test):
        """What the test is made of, in a word."""
        if test not in self.sums:
            with open(os.path.join(self.path, "tests", test), "rb") as f:
                self.sums[test] = hashlib.sha256(f.read()).hexdigest()
        return self.sums[test]

    def link_command(self, test):
        if test not in self.link:
            out = subprocess.run(["ninja", "-C", self.path, "-t", "commands", "-s", f"tests/{test}"], check=True, capture_output=True, text=True).stdout
            self.link[test] = shlex.split([x for x in out.splitlines() if not x.startswith("ninja:")][-1])
        return self.link[test]

    def objects_of(self, m):
        """The compile commands of what is made of m's file: itself, or the .cu files that call the function of a .cuh file."""
        path, names = m.path, [os.path.basename(m.path)]
        if path.endswith(".cuh"):
            names = [os.path.basename(p) for p in glob.glob(os.path.join(TOP, "kernels/cuda/*.cu")) if re.search(rf"\b{m.function}\b", open(p).read())]
        want = {os.path.join(TOP, path)} if path.endswith(".c") else set()
        made = [c for c in self.compile if os.path.normpath(os.path.join(c["directory"], c["file"])) in want
                or ("libps_kcuda.a.p" in c["output"] and any(c["file"].endswith(f"emu_{n[:-3]}.cpp") for n in names if n.endswith(".cu")))]
        if not made:
            raise SystemExit(f"mutants.py: {self.path} makes nothing of {path}")
        return made


def run(cmd, cwd, timeout, env=None):
    """-> exit status; None: no end. Its own session, so that nothing outlives it."""
    with open(os.path.join(cwd, "log"), "ab") as log:
        p = subprocess.Popen(cmd, cwd=cwd, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env={**os.environ, **(env or {})})
        try:
            return p.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            p.wait()
            return None


def compile_changed(build, m, at):
    """The objects made of the changed file, which lies in `at` where it would lie in the tree."""
    changed = os.path.join(at, m.path)
    os.makedirs(os.path.dirname(changed))
    with open(changed, "w") as f:
        f.write(m.new_text)
    objects = []
    for i, c in enumerate(build.objects_of(m)):
        obj = os.path.join(at, f"{i}.o")
        cmd = shlex.split(c["command"])
        if os.path.basename(cmd[0]) in ("ccache", "sccache"):
            del cmd[0]
        cmd[cmd.index("-o") + 1] = obj
        if m.path.endswith(".c"):
            cmd[cmd.index("-c") + 1] = changed
        # Dependency files would be the build's; a statement less may leave something unused.
        drop = {"-MD", "-Werror"} | {cmd[cmd.index(o) + 1] for o in ("-MQ", "-MF") if o in cmd} | {"-MQ", "-MF"}
        cmd = [cmd[0], "-I" + at, "-w", *[x for x in cmd[1:] if x not in drop]]
        if subprocess.run(cmd, cwd=c["directory"], stdout=subprocess.DEVNULL, stderr=open(os.path.join(at, "log"), "ab")).returncode:
            return None
        objects.append(obj)
    return objects


def try_tests(build, m, at, timeout):
    objects = compile_changed(build, m, at)
    if objects is None:
        return "does not build", ""
    for test in m.tests:
        cmd, exe = list(build.link_command(test[0])), os.path.join(at, test[0])
        i = cmd.index("-o")
        cmd[i + 1:i + 2] = [exe, *objects]
        if not os.path.exists(exe) and subprocess.run(cmd, cwd=build.path, stdout=subprocess.DEVNULL, stderr=open(os.path.join(at, "log"), "ab")).returncode:
            return "does not build", ""
        rc = run([exe, *test[1:]], at, timeout, {"CUDAEMU": "abort"} if test[0] == KTEST else None)
        if rc != 0:
            return "found", " ".join(test) + (": no end" if rc is None else "")
    return "survived", ""


def judge(build, m, timeout):
    at, begin = tempfile.mkdtemp(prefix="mutant-"), time.monotonic()
    try:
        m.result, m.by = try_tests(build, m, at, timeout)
        if m.result == "does not build":
            with open(os.path.join(at, "log"), errors="replace") as f:
                m.by = next((x.strip() for x in f if "error" in x), "")[:200]
    finally:
        shutil.rmtree(at, ignore_errors=True)
    m.seconds = time.monotonic() - begin


class Results:
    """Of earlier runs and this one; FILE may be None."""

    def __init__(self, path, build):
        self.path, self.build, self.all, self.lock = path, build, {}, threading.Lock()
        if path and os.path.exists(path):
            with open(path) as f:
                self.all = {r["name"]: r for r in json.load(f)}

    def key(self, m):
        return hashlib.sha256("\0".join([m.new_text] + [" ".join(t) + self.build.sum_of(t[0]) for t in m.tests]).encode()).hexdigest()

    def take(self, m):
        """-> whether m's result is known"""
        r = self.all.get(m.name)
        if not r or r["key"] != self.key(m):
            return False
        m.result, m.by, m.seconds = r["result"], r["by"], r["seconds"]
        return True

    def put(self, m):
        with self.lock:
            self.all[m.name] = dict(name=m.name, kind=m.kind, file=m.path, line=m.line, text=m.text.strip(), result=m.result, by=m.by,
                                    why=EXPLAINED.get(m.name), seconds=round(m.seconds, 1), key=self.key(m))
            if self.path:
                with open(self.path + ".new", "w") as f:
                    json.dump(list(self.all.values()), f, indent=1)
                os.replace(self.path + ".new", self.path)


def wholes(ms):
    """The same way with nothing cut out, once for each test: all must pass, or finding means nothing."""
    made, seen = [], set()
    for m in ms:
        for t in m.tests:
            if t not in seen:
                seen.add(t)
                made.append(Mutant(m.kind, m.path, 0, "", open(os.path.join(TOP, m.path)).read(), m.function, "whole " + " ".join(t), [t]))
    return made


def bad(m):
    return m.result == "does not build" or (m.result == "survived") != (m.name in EXPLAINED)


def table(ms):
    git = ["git", "-C", TOP, "describe", "--always", "--abbrev=12", "--dirty", "--exclude=*"]
    commit = subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()
    rows = [f"# {len(ms)} mutants of what orders work on a GPU", "",
            f"Written by tests/mutants.py at {commit}: each has one event, barrier, pin or use of a buffer less than the product. "
            + ", ".join(f"{sum(m.result == r for m in ms)} {r}" for r in sorted({m.result for m in ms})) + ".", "",
            "| mutant | place | result | by, or why not |", "| --- | --- | --- | --- |"]
    return "\n".join(rows + [f"| {m.name} | {m.path}:{m.line} | {m.result} | {m.by or EXPLAINED.get(m.name, '')} |" for m in ms]) + "\n"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("build")
    ap.add_argument("--list", action="store_true")
    ap.add_argument("--sample", action="store_true")
    ap.add_argument("--only", action="append", default=[], metavar="REGEX", help="of name, or file:line")
    ap.add_argument("--jobs", type=int, default=1)
    ap.add_argument("--timeout", type=float, default=300, help="seconds for one test (300)")
    ap.add_argument("--json", metavar="FILE")
    ap.add_argument("--for", dest="seconds", type=float, default=math.inf, metavar="S", help="seconds after which no mutant is begun")
    ap.add_argument("--table", metavar="FILE", help="Markdown")
    a = ap.parse_args()
    ms = all_mutants()
    sample = {n: next((m for m in ms if re.search(n, str(m))), None) for n in SAMPLE}
    gone = [n for n in SAMPLE if not sample[n]] + [n for n in EXPLAINED if n not in {m.name for m in ms}]
    if gone:
        raise SystemExit(f"mutants.py: no such mutant any more: {', '.join(gone)}")
    if a.sample:
        ms = list(sample.values())
    ms = [m for m in ms if not a.only or any(re.search(o, str(m)) for o in a.only)]
    if a.list:
        print("\n".join(map(str, ms)))
        return 0
    build = Build(a.build)
    results, end = Results(a.json, build), time.monotonic() + a.seconds

    def one(m):
        if not results.take(m) and time.monotonic() < end:
            judge(build, m, a.timeout)
            results.put(m)
            print(f"{m.result} ({m.seconds:.0f} s) {m}{'   <- ' + m.by if m.by else ''}{'   explained' if m.name in EXPLAINED else ''}", flush=True)
        return m

    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for w in pool.map(one, wholes(ms)):
            if w.result not in (None, "survived"):
                raise SystemExit(f"mutants.py: {w.path} as it is: {w.result}, {w.by}")
        tried = [m for m in pool.map(one, ms) if m.result]
    left = len(ms) - len(tried)
    if a.table and not left:
        with open(a.table, "w") as f:
            f.write(table(ms))
    failed = [m for m in tried if bad(m)]
    explained = sum(m.result == "survived" for m in tried) - sum(m.result == "survived" for m in failed)
    if left:
        print(f"{left} left")
    print(f"{len(tried) - len(failed) - explained} passed, {len(failed) + (not ms)} failed, {explained} skipped")
    return 1 if failed or not ms else 3 if left else 0


if __name__ == "__main__":
    sys.exit(main())
