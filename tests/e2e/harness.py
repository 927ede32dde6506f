# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end tests are written with: a test is a function test_*(t) in a test_*.py file beside this one; `t` runs the
program (with gpu=Gpu(...) on an emulated GPU), makes jobs and compares. Marks: @smoke (also under ASan and UBSan), @threads (also under TSan), @alone (nothing beside it)."""
import importlib, inspect, json, os, random, shutil, subprocess, sys, threading, time, traceback

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
SHARED = os.path.join(os.path.dirname(TOP), "shared", "data")
sys.path.insert(0, HERE)
import make_models

POLICIES = {
    "full": ["--kv-policy", "full"],
    "local": ["--kv-policy", "local", "--kv-recent", "9"],
    "sink": ["--kv-policy", "sink", "--kv-sinks", "3", "--kv-recent", "7"],
    "h2o": ["--kv-policy", "h2o", "--kv-heavy", "6", "--kv-recent", "5"],
}


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def mark(name):
    def put(fn):
        fn.marks = getattr(fn, "marks", set()) | {name}
        return fn
    return put


smoke, threads, alone = mark("smoke"), mark("threads"), mark("alone")


def cases(**table):
    """One test per entry: the function is called as fn(t, value)."""
    def put(fn):
        fn.cases = table
        return fn
    return put


def watch_peak(pid, peak):
    """The highest resident size of a process until it ends. wait4()'s would be this Python's own, where that is higher."""
    while True:
        try:
            with open(f"/proc/{pid}/status") as f:
                hwm = [x for x in f if x.startswith("VmHWM")]
        except OSError:
            return
        if not hwm:                                     # a zombie has no memory
            return
        peak[0] = max(peak[0], int(hwm[0].split()[1]) << 10)
        time.sleep(0.003)


class Gpu:
    """Give it to run(), start() or generate() as gpu=: the program runs on an emulated GPU. Knobs are those of CUDAEMU
    (tests/cudaemu/include/cudaemu.h): Gpu(seed=3, mem="64M", fail="cudaMalloc:1:2"). race: the build that knows every access of a
    kernel (half as quick). leaks: something may stay behind on the GPU, because a call that gives back was made to fail."""

    def __init__(self, race=False, leaks=False, **knobs):
        self.race, self.leaks, self.knobs = race, leaks, knobs

    def program(self, exe):
        built = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(exe))))
        path = os.path.join(built, "tests", "emu", *(["race"] if self.race else []), "penstock")
        if not os.path.exists(path):
            raise Skipped("no emulated GPU in this build")
        return path

    def env(self, log):
        return {"CUDAEMU": ",".join([f"{k}={v}" for k, v in self.knobs.items()] + ["exit=86", "log=" + log])}

    def check(self, log, rc):
        """-> what the emulation counted, {"calls": {function: n}, "peak": bytes, ...}; nothing if the program was killed."""
        if not os.path.exists(log):
            raise Failed("the program did not ask for the GPU")
        with open(log) as f:
            lines = [x.rstrip("\n") for x in f]
        os.remove(log)
        reports = [x for x in lines if x.startswith("report ")]
        if reports:
            raise Failed(f"{len(reports)} reports of the emulated GPU, the first: {reports[0]}")
        got = {"calls": {}}
        for x in lines:
            *name, n = x.split()
            if name[0] == "calls":
                got["calls"][name[1]] = int(n)
            else:
                got[name[0]] = int(n)
        if rc >= 0 and "reports" not in got:
            raise Failed("the program ended before the emulated GPU could count")
        if got.get("live") and not self.leaks:
            raise Failed(f"{got['live']} allocations, streams, events or handles of the GPU were not given back")
        return got


class Result:
    def __init__(self, rc, out, err, maxrss):
        self.rc, self.out, self.err, self.maxrss = rc, out, err, maxrss
        self.gpu = None                                 # with gpu=: what the emulation counted

    def says(self, *words):
        text = (self.err + self.out).lower()
        for w in words:
            if w.lower() not in text:
                raise Failed(f"the message does not say {w!r}: {(self.err + self.out)[-600:]!r}")
        return self


class Shared:
    """Made once for all tests: models, packed models."""

    def __init__(self, exe, root, slow_by):
        self.exe, self.root, self.slow_by = exe, root, slow_by
        self.lock, self.made = threading.Lock(), {}
        self.env = {**os.environ, "XDG_CACHE_HOME": os.path.join(root, "cache"), "HOME": root, "LC_ALL": "C.UTF-8"}
        self.env.pop("PS_FAULT", None)

    def once(self, key, make):
        with self.lock:
            if key not in self.made:
                self.made[key] = make()
            return self.made[key]


class T:
    def __init__(self, shared, name):
        self.shared, self.exe, self.name = shared, shared.exe, name
        self.dir = os.path.join(shared.root, "".join(c if c.isalnum() else "-" for c in name))
        os.makedirs(self.dir)
        self.rng = random.Random(name)
        self.started = 0

    # ---- files and models
    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, data):
        p = self.path(name)
        with open(p, "wb") as f:
            f.write(data if isinstance(data, bytes) else data.encode())
        return p

    def read(self, name):
        with open(self.path(name), "rb") as f:
            return f.read()

    def exists(self, name):
        return os.path.lexists(self.path(name))

    def hf(self, name):
        """A model in Hugging Face layout."""
        if name == "demo-opt":
            return os.path.join(TOP, "models", "demo-opt")
        return self.shared.once(("hf", name), lambda: make_models.make(os.path.join(self.shared.root, "hf"), name))

    def model(self, name):
        """The same, packed."""
        src = self.hf(name)

        def make():
            dst = os.path.join(self.shared.root, "packed-" + name)
            self.run("convert", src, dst)
            return dst
        return self.shared.once(("packed", name), make)

    def copy_hf(self, name, to="hf"):
        shutil.copytree(self.hf(name), self.path(to))
        return self.path(to)

    # ---- running
    def start(self, *args, env=None, stdin=None, gpu=None, **kw):
        self.started += 1
        log = self.path(f"gpu-{self.started}.log")
        env = {**self.shared.env, **(gpu.env(log) if gpu else {}), **(env or {})}
        p = subprocess.Popen([gpu.program(self.exe) if gpu else self.exe, *map(str, args)], cwd=self.dir, env=env,
                             stdin=stdin or subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)
        p.gpu, p.gpu_log = gpu, log
        return p

    def finish(self, p, timeout=60, data=None):
        """Waits for a started program: never a hang."""
        timer = threading.Timer(timeout * self.shared.slow_by, p.kill)
        timer.start()
        out, err = [], []
        readers = [threading.Thread(target=lambda: out.append(p.stdout.read())), threading.Thread(target=lambda: err.append(p.stderr.read()))]
        peak = [0]
        readers.append(threading.Thread(target=watch_peak, args=(p.pid, peak)))
        for r in readers:
            r.start()
        if data is not None:
            try:
                p.stdin.write(data)
                p.stdin.close()
            except BrokenPipeError:
                pass
        for r in readers:
            r.join()
        p.wait()
        hung = not timer.is_alive()
        timer.cancel()
        p.stdout.close()
        p.stderr.close()
        if hung:
            raise Failed(f"no end after {timeout * self.shared.slow_by:.0f} s: {' '.join(p.args)}\n{err[0][-800:].decode(errors='replace')}")
        r = Result(p.returncode, out[0].decode("utf-8", "surrogateescape"), err[0].decode("utf-8", "replace"), peak[0])
        if p.gpu:
            r.gpu = p.gpu.check(p.gpu_log, r.rc)
        return r

    def run(self, *args, rc=0, timeout=60, data=None, env=None, **kw):
        """Runs the program; rc: the exit status it must have (None: any that is not a crash)."""
        p = self.start(*args, env=env, stdin=subprocess.PIPE if data is not None else None, **kw)
        r = self.finish(p, timeout, data)
        ok = r.rc >= 0 and r.rc not in (132, 134, 136, 139) if rc is None else r.rc in (rc if isinstance(rc, tuple) else (rc,))
        if not ok or "Sanitizer" in r.err:
            raise Failed(f"exit {r.rc}, wanted {rc}: {' '.join(map(str, p.args[1:]))}\n{r.err[-1500:]}")
        return r

    def generate(self, model, job, *opts, rc=0, out="out.jsonl", fresh=True, **kw):
        """A job's records by custom_id, in the output's order. `job`: a list of bodies (dicts), (custom_id, body) pairs, or a path."""
        if not isinstance(job, str):
            job = self.job(job)
        if fresh:
            for f in (out, out + ".part", out + ".journal"):
                if self.exists(f):
                    os.remove(self.path(f))
        self.last = self.run("generate", model, job, "-o", out, *opts, rc=rc, **kw)
        return self.records(out) if self.exists(out) else None

    def job(self, reqs, name="in.jsonl"):
        lines = []
        for i, r in enumerate(reqs):
            cid, body = r if isinstance(r, tuple) else (f"r{i}", r)
            lines.append(json.dumps(dict(custom_id=cid, method="POST", url="/v1/completions", body=body)))
        return self.write(name, "\n".join(lines) + "\n")

    def records(self, name):
        out = {}
        for line in self.read(name).decode("utf-8").splitlines():      # valid UTF-8 or the test fails
            r = json.loads(line)
            if r["custom_id"] in out and r["error"] is None:
                raise Failed(f"two results for {r['custom_id']}")
            out.setdefault(r["custom_id"], r)
        return out

    def one(self, model, body, *opts, **kw):
        """The choice of a job with one request."""
        r = self.generate(model, [body], *opts, **kw)["r0"]
        if r["error"] is not None:
            raise Failed(f"error record: {r['error']}")
        return r["response"]["body"]["choices"][0]

    # ---- judging
    def check(self, ok, what):
        if not ok:
            raise Failed(what)

    def preload(self, name):
        """A module of tests/e2e that goes into the program by LD_PRELOAD, if it was built; sanitizers would be in its way."""
        path = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(self.exe)))), "tests", "e2e", name)
        if self.shared.slow_by > 1 or not os.path.exists(path):
            self.skip(f"no {name} in this build")
        return path

    def eq(self, got, want, what=""):
        if got != want:
            raise Failed(f"{what}: got {str(got)[:700]} want {str(want)[:700]}")

    def near(self, got, want, tol, what=""):
        if got is None or not abs(got - want) <= tol:
            raise Failed(f"{what}: got {got} want {want} +- {tol}")

    def skip(self, why):
        raise Skipped(why)


def choices(records):
    """What must not depend on how a job was run: per custom_id, the choices' text."""
    return {k: json.dumps(r["error"] or r["response"]["body"]["choices"]) for k, r in sorted(records.items())}


def same(t, got, want, what):
    a, b = choices(got), choices(want)
    for k in b:
        if a.get(k) != b[k]:
            raise Failed(f"{what}: {k} differs:\n  got  {str(a.get(k))[:500]}\n  want {b[k][:500]}")
    t.eq(sorted(a), sorted(b), f"{what}: requests")


def token_job(vocab, n=14, longest=40, new=24, seed=7):
    """Requests by token ids: short and long, greedy and sampled, with and without log-probabilities."""
    rng = random.Random(seed)
    reqs = []
    for i in range(n):
        b = dict(prompt=[2] + [rng.randrange(3, vocab) for _ in range(rng.randrange(longest))], max_tokens=rng.randrange(1, new + 1),
                 return_token_ids=True)
        if i % 3 == 1:
            b.update(temperature=0.9, top_p=0.9, seed=i)
        if i % 3 == 2:
            b.update(temperature=1.3, top_k=20, seed=i)
        if i % 2:
            b.update(logprobs=i % 5, return_tokens_as_token_ids=True)
        if i % 4 == 0:
            b["ignore_eos"] = True
        reqs.append((f"q-{i}", b))
    return reqs


def find(only):
    """-> [(name, function, marks)] in a fixed order"""
    out = []
    for f in sorted(os.listdir(HERE)):
        if not (f.startswith("test_") and f.endswith(".py")):
            continue
        mod = importlib.import_module(f[:-3])
        fns = [(n, fn) for n, fn in inspect.getmembers(mod, inspect.isfunction) if n.startswith("test_") and fn.__module__ == f[:-3]]
        for n, fn in sorted(fns, key=lambda x: x[1].__code__.co_firstlineno):
            base, marks = f"{f[5:-3]}.{n[5:]}", getattr(fn, "marks", set())
            table = getattr(fn, "cases", None)
            if table is None:
                out.append((base, fn, marks))
            else:
                out += [(f"{base}[{k}]", (lambda t, fn=fn, v=v: fn(t, v)), marks) for k, v in table.items()]
    return [x for x in out if not only or any(o in x[0] for o in only)]


def run_one(shared, name, fn, keep):
    t = T(shared, name)
    begin = time.monotonic()
    try:
        verdict, why = "ok", fn(t) or ""
    except Skipped as e:
        verdict, why = "skip", str(e)
    except Failed as e:
        verdict, why = "FAIL", f"{e} (line {traceback.extract_tb(e.__traceback__)[1].lineno if len(traceback.extract_tb(e.__traceback__)) > 1 else '?'})"
    except Exception:
        verdict, why = "FAIL", traceback.format_exc(limit=-4)
    if not keep or verdict != "FAIL":
        shutil.rmtree(t.dir, ignore_errors=True)
    return verdict, why, time.monotonic() - begin
