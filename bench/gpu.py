#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks and measures Penstock on a machine with a GPU, in named parts, none of which takes more than 4 minutes.

    gpu.sh list                       the parts, their groups and time limits
    gpu.sh all | GROUP... | PART...   run them, with what they need before
    gpu.sh build                      build into build-gpu (needs nvcc, meson, and what run.sh build installs)
    gpu.sh pack DIR                   copy the programs of --build, and the libraries that they need, into DIR: then
                                      `gpu.sh all --build DIR` runs on a machine that has neither compiler nor packages
    gpu.sh table                      write the summary of what is there anew

A part that is done (the same programs, the same GPU, the same sizes) is not run again without --again, which is for the parts named; one that was killed, failed or
was skipped is cleaned up and run again. Results: OUT/gpu-PART.json and .md, and OUT/gpu-summary.md. What was aimed at and not reached
is printed as such, and is no failure. Exit: 0, 1 if a part failed, 2 wrong usage or no usable GPU, 130 interrupted.
The last line is `N done, N failed, N skipped`.
"""
import argparse, ctypes, datetime, fcntl, glob, hashlib, json, os, re, shutil, signal, subprocess, sys, time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAMS = {"penstock": ["penstock", "engine/cli/penstock"], "module": ["penstock-cuda.so", "engine/cli/penstock-cuda.so"], "ktest": ["ps-ktest", "tests/ps-ktest"],
            "device": ["ps-dev-gpu", "tests/offload/ps-dev-gpu"], "probe": ["gpu-probe", "bench/gpu-probe"]}
SYSTEM_LIBS = re.compile(r"(ld-linux.*|libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|libcublas|libcublasLt|libcuda)\.so")


class Failed(Exception):
    """A part found something wrong."""


class Skip(Exception):
    """A part cannot be done on this machine."""


class Timeout(Exception):
    """A part's time is up."""


class Part:
    """makes: the path, of the arguments, of what it leaves behind for others; without that it is not done."""

    def __init__(self, name, group, limit_s, what, run, needs=(), sampled=False, makes=None):
        self.name, self.group, self.limit_s, self.what, self.run, self.needs, self.sampled, self.makes = name, group, limit_s, what, run, needs, sampled, makes


def find(build, emulated):
    """-> the programs of a build or of a packed folder; None for each that is not there"""
    out = {}
    for key, places in PROGRAMS.items():
        emu = [f"tests/emu/{places[0]}"] if emulated and key in ("penstock", "module", "probe") else []
        out[key] = next((os.path.join(build, p) for p in emu + places if os.path.exists(os.path.join(build, p))), None)
    return out


def library_dirs(a):
    """Where cuBLAS (libcublasLt, and for the probe libcublas) may lie that the loader does not know of: CUDA's own folders, and those that pip makes."""
    places = ["/usr/local/cuda/lib64", *glob.glob("/usr/local/cuda-*/lib64"), *(d for p in sys.path for d in glob.glob(p + "/nvidia/*/lib"))]
    return [d for d in [os.path.join(a.build, "lib"), *a.cuda_libs, *places] if glob.glob(d + "/libcublasLt.so*") or d == os.path.join(a.build, "lib")]


def environment(a):
    env = dict(os.environ, LD_LIBRARY_PATH=":".join(library_dirs(a) + [os.environ.get("LD_LIBRARY_PATH", "")]).strip(":"))
    if a.emulated:
        env.setdefault("CUDAEMU", "mem=1G")
    return env


def output_of(cmd, env=None):
    try:
        return subprocess.run(cmd, env=env, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def machine(a):
    """What the table's head says; exits when no GPU can be used, in doctor's words."""
    for key in ("penstock", "ktest", "device", "probe"):
        if not a.programs[key]:
            stop(f"{a.build}: no {PROGRAMS[key][0]} there: --build names a build with tests and nvcc, or a folder that `gpu.sh pack` made; `gpu.sh build` makes build-gpu")
    try:
        found = {f["id"]: f for f in json.loads(output_of([a.programs["penstock"], "doctor", "--json"], environment(a)))}
    except ValueError:
        r = subprocess.run([a.programs["penstock"], "--version"], env=environment(a), capture_output=True, text=True)
        stop(f"{a.programs['penstock']} does not start: {r.stderr.strip()}")
    for key in ("cuda_module", "gpu"):
        f = found[key]
        if "no CUDA" in f["text"] or "no GPU can be used" in f["text"] or f["health"] not in ("ok", "info"):
            stop(f["text"] + (f"\n  {f['advice']}" if f.get("advice") else ""))
    m = re.match(r"(.*) at (\S+), compute capability (\S+), .*?of (\S+) GiB free, driver for CUDA (\S+), module of CUDA (\S+)", found["gpu"]["text"])
    if not m:
        stop(f"doctor's words are not understood: {found['gpu']['text']}")
    smi = output_of(["nvidia-smi", "--query-gpu=driver_version,pcie.link.gen.max,pcie.link.width.max", "--format=csv,noheader", "-i", "0"]).strip().split(", ")
    cpu = re.search(r"\((.*)\)", found["cpus"]["text"])
    return {"gpu": m[1], "compute_capability": m[3], "gpu_gib": float(m[4]), "driver": smi[0] or None, "pcie": f"gen {smi[1]} x{smi[2]}" if len(smi) == 3 else None,
            "driver_cuda": m[5], "module_cuda": m[6], "cpu": cpu[1] if cpu else None, "cpus": os.cpu_count(), "memory": found["memory"]["text"], "kernel": os.uname().release}


def stop(why):
    print(f"gpu.sh: {why}", file=sys.stderr)
    sys.exit(2)


def die_with_parent():
    """So that a killed script leaves nothing on the GPU."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)              # PR_SET_PDEATHSIG


class Run:
    """One part under way: its folder, its clock, what it found."""

    def __init__(self, a, part, limit_s):
        self.a, self.part, self.end = a, part, time.monotonic() + limit_s
        self.dir = os.path.join(a.work, "part-" + part.name)
        self.rows, self.reached, self.notes, self.values, self.counts = [], [], [], {}, [0, 0, 0]
        shutil.rmtree(self.dir, ignore_errors=True)         # what a killed run left
        os.makedirs(self.dir)
        self.log = open(os.path.join(a.work, part.name + ".log"), "w")

    def sh(self, cmd, rc=(0,), env=None):
        """-> a command's standard output; its time ends with the part's."""
        left = self.left()
        if left <= 0:
            raise Timeout()
        self.log.write("$ " + " ".join(cmd) + "\n")
        self.log.flush()
        p = subprocess.Popen(cmd, env={**environment(self.a), **(env or {})}, cwd=self.dir, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             start_new_session=True, preexec_fn=die_with_parent)
        try:
            out, err = p.communicate(timeout=left)
        except subprocess.TimeoutExpired:
            raise Timeout() from None
        finally:
            if p.poll() is None:                            # also when this script is interrupted
                os.killpg(p.pid, signal.SIGKILL)
                p.communicate()
        self.log.write(out[-20000:] + err[-20000:])
        self.log.flush()
        if p.returncode not in rc:
            raise Failed(f"exit {p.returncode}: {' '.join(cmd)}\n{(out[-800:] + err[-1200:]).strip()}")
        self.rc = p.returncode
        return out

    def reach(self, what, got, want, at_most=False):
        met = got is not None and (got <= want if at_most else got >= want)
        self.reached.append({"what": what, "got": got, "want": want, "at_most": at_most, "met": met})

    def row(self, **cells):
        self.rows.append(cells)

    def left(self):
        return self.end - time.monotonic()

    def of(self, part):
        """What another part has measured."""
        return load(self.a, part)["values"]


# ---------------------------------------------------------------- results

def path_of(a, name, ext):
    return os.path.join(a.out, f"gpu-{name}.{ext}")


def load(a, name):
    try:
        return json.load(open(path_of(a, name, "json")))
    except (OSError, ValueError):
        return None


def write(path, text):
    with open(path + ".tmp", "w") as f:
        f.write(text)
    os.replace(path + ".tmp", path)


def identity(a):
    """What a result depends on: these programs, this GPU, these sizes."""
    h = hashlib.sha256(json.dumps([a.machine["gpu"], a.machine["driver"], a.tiny, a.emulated, a.gpu_mem, a.prompts, a.stand_in]).encode())
    for p in sorted(filter(None, a.programs.values())):
        h.update(open(p, "rb").read())
    return h.hexdigest()[:16]


def is_done(a, part):
    r = load(a, part.name)
    return bool(r) and r["status"] == "done" and r["identity"] == a.identity and (not part.makes or os.path.exists(part.makes(a)))


def number(v):
    return "-" if v is None else str(v) if not isinstance(v, float) else f"{v:.0f}" if abs(v) >= 1000 else f"{v:.3g}"


def table(rows):
    if not rows:
        return []
    keys = list(dict.fromkeys(k for r in rows for k in r))
    return ["| " + " | ".join(keys) + " |", "|" + " --- |" * len(keys)] + ["| " + " | ".join(number(r.get(k)) for k in keys) + " |" for r in rows]


def turned(rows):
    """A few rows with many cells: a line for each cell."""
    keys = list(dict.fromkeys(k for r in rows for k in r))
    return [{"": k, **{" " * i + "value": r.get(k) for i, r in enumerate(rows)}} for k in keys] if len(keys) > 12 else rows


def verdict(r):
    share = lambda v: "-" if v is None else f"{100 * v:.1f} %"
    return f"{'reached' if r['met'] else 'NOT REACHED'}: {r['what']}: {share(r['got'])}, aimed at {'at most' if r['at_most'] else 'at least'} {share(r['want'])}"


def about(m):
    return (f"{m['gpu']} (compute capability {m['compute_capability']}, {m['gpu_gib']} GiB), driver {m['driver'] or 'unknown'} for CUDA {m['driver_cuda']}, module of CUDA {m['module_cuda']}, "
            f"PCIe {m['pcie'] or 'unknown'}; {m['cpu']}, {m['cpus']} CPUs")


def marks(r):
    return "".join(f" (`{m}`)" for m in ("sampled", "tiny", "emulated") if r[m])


def markdown(r):
    lines = [f"# {r['what']}{marks(r)}", "", f"`bench/gpu.sh {r['part']}`, {r['date']}, {about(r['machine'])}. {r['status'].capitalize()} after {r['seconds']:.0f} s."]
    if r["why"]:
        lines += ["", "```", r["why"], "```"]
    if sum(r["counts"]):
        lines += ["", "{} passed, {} failed, {} skipped.".format(*r["counts"])]
    for part in (r["notes"], table(turned(r["rows"])), ["- " + verdict(x) for x in r["reach"]]):
        lines += [""] + part if part else []
    return "\n".join(lines) + "\n"


def summary(a, parts):
    """Of what is there and was made on the GPU of the newest."""
    found = [r for r in (load(a, p.name) for p in parts) if r]
    if not found:
        return
    newest = max(found, key=lambda r: r["date"])
    found = [r for r in found if [r["machine"][k] for k in ("gpu", "driver")] == [newest["machine"][k] for k in ("gpu", "driver")]]
    lines = ["# On a GPU", "", about(newest["machine"]) + ". Each part's own table: gpu-PART.md.", ""]
    lines += table([{"part": r["part"], "what": r["what"] + marks(r), "status": r["status"], "date": r["date"][:10], "s": r["seconds"], "tokens/s": r["values"].get("tokens_per_s"),
                     "decode step, s": r["values"].get("step_s")} for r in found])
    reach = [f"- {verdict(x)} ({r['part']})" for r in found for x in r["reach"]]
    write(path_of(a, "summary", "md"), "\n".join(lines + ([""] + reach if reach else [])) + "\n")


# ---------------------------------------------------------------- running

def named(parts, names):
    unknown = [n for n in names if n != "all" and not any(n in (p.name, p.group) for p in parts)]
    if unknown:
        stop(f"there is no part {unknown[0]}; `gpu.sh list` names them")
    return [p for p in parts if "all" in names or p.name in names or p.group in names]


def with_needs(parts, wanted, to_do):
    """`wanted` and what those of them that are `to_do` need, in the table's order."""
    by_name, out = {p.name: p for p in parts}, set()

    def add(p):
        out.add(p.name)
        for n in p.needs if to_do(p) else ():
            add(by_name[n])
    for p in wanted:
        add(p)
    return [p for p in parts if p.name in out]


def run_part(a, part, limit_s, needs=()):
    begin, c = time.monotonic(), Run(a, part, limit_s)
    status, why = "done", None
    try:
        missing = [p for p in needs if not is_done(a, p)]
        if missing:
            raise Skip(f"{missing[0].name} is not done")
        part.run(c)
    except Skip as e:
        status, why = "skipped", str(e)
    except Failed as e:
        status, why = "failed", str(e)
    except Timeout:
        status, why = "failed", f"no end after {limit_s:.0f} s"
    except (KeyError, ValueError, OSError, StopIteration) as e:
        status, why = "failed", f"what a program wrote is not understood: {type(e).__name__}: {e}"
    finally:
        c.log.close()
        shutil.rmtree(c.dir, ignore_errors=True)
    r = {"part": part.name, "what": part.what, "status": status, "why": why, "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "seconds": time.monotonic() - begin,
         "limit_s": limit_s, "identity": a.identity, "sampled": part.sampled, "tiny": a.tiny, "emulated": a.emulated, "machine": a.machine, "counts": c.counts, "notes": c.notes,
         "values": c.values, "rows": c.rows, "reach": c.reached}
    write(path_of(a, part.name, "md"), markdown(r))
    write(path_of(a, part.name, "json"), json.dumps(r, indent=1) + "\n")     # last: it is what says done
    return r


def run_all(a, parts, wanted):
    done, end = {"done": 0, "failed": 0, "skipped": 0}, time.monotonic() + a.within if a.within else None
    os.makedirs(a.out, exist_ok=True)
    os.makedirs(a.work, exist_ok=True)
    lock = open(os.path.join(a.work, "lock"), "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        stop(f"{a.work}: another gpu.sh is at work there")
    a.machine = machine(a)
    a.identity = identity(a)
    print(f"# {about(a.machine)}", flush=True)
    to_do = lambda p: not is_done(a, p) or (a.again and p in wanted)
    for part in with_needs(parts, wanted, to_do):
        if not to_do(part):
            print(f"done before  {part.name}", flush=True)
            done["done"] += 1
            continue
        limit = min(part.limit_s, end - time.monotonic()) if end else part.limit_s
        if limit < min(part.limit_s, 10):
            print(f"not begun    {part.name}: --within {a.within:.0f} is over", flush=True)
            done["skipped"] += 1
            continue
        r = run_part(a, part, limit, [p for p in parts if p.name in part.needs])
        done[r["status"]] += 1
        print(f"{r['status']:12} {part.name} ({r['seconds']:.0f} s){marks(r)}{': ' + r['why'] if r['why'] else ''}", flush=True)
        for x in r["reach"]:
            print(f"             {verdict(x)}", flush=True)
        summary(a, parts)
    print("{done} done, {failed} failed, {skipped} skipped".format(**done))
    return 1 if done["failed"] else 0


# ---------------------------------------------------------------- building and packing

def build(a):
    d = os.path.join(TOP, "build-gpu")
    if not os.path.exists(os.path.join(d, "build.ninja")):
        subprocess.run(["meson", "setup", d, TOP, "-Dcuda=enabled"], check=True)
    subprocess.run(["ninja", "-C", d, "engine/cli/penstock", "engine/cli/penstock-cuda.so", "tests/ps-ktest", "tests/offload/ps-dev-gpu", "bench/gpu-probe"], check=True)


def pack(a, dst):
    missing = [k for k, v in a.programs.items() if not v]
    if missing:
        stop(f"{a.build}: no {PROGRAMS[missing[0]][0]} there")
    os.makedirs(os.path.join(dst, "lib"), exist_ok=True)
    for key, src in a.programs.items():
        shutil.copy(src, os.path.join(dst, PROGRAMS[key][0]))
        for name, path in re.findall(r"(\S+) => (/\S+)", output_of(["ldd", src])):
            if not SYSTEM_LIBS.match(name):
                shutil.copy(path, os.path.join(dst, "lib", name))
    size = sum(os.path.getsize(f) for f in glob.glob(dst + "/**", recursive=True) if os.path.isfile(f))
    print(f"{dst}: {size / 2**20:.1f} MiB; cuBLAS and the driver are the other machine's")


def main():
    from gpu_parts import PARTS
    ap = argparse.ArgumentParser(prog="gpu.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("names", nargs="+", metavar="NAME")
    ap.add_argument("--build", default=os.path.join(TOP, "build-gpu"), help="a build with tests and nvcc, or a packed folder")
    ap.add_argument("--out", help="for results (bench/results; of --tiny and --emulated WORK/results)")
    ap.add_argument("--work", default=os.path.join(os.environ.get("TMPDIR", "/tmp"), "penstock-gpu"), help="for models and jobs; OPT-6.7B takes 13 GB, OPT-30B 60; a folder in memory will do")
    ap.add_argument("--again", action="store_true", help="also what is done")
    ap.add_argument("--within", type=float, metavar="S", help="begin no part when so many seconds are over, and cut the last one's time")
    ap.add_argument("--gpu-mem", default="16G", help="of whole jobs (16G)")
    ap.add_argument("--prompts", type=int, default=128, help="of a whole job (128)")
    ap.add_argument("--stand-in", action="store_true", help="a model that the disk has no room for is made with fewer layers")
    ap.add_argument("--cuda-libs", action="append", default=[], metavar="DIR", help="where cuBLAS lies, if it is not found")
    ap.add_argument("--tiny", action="store_true", help="tiny sizes: whether the parts run at all")
    ap.add_argument("--emulated", action="store_true", help="the programs of a build's emulated GPU, for tests of this script")
    a = ap.parse_args()
    a.out = a.out or (os.path.join(a.work, "results") if a.tiny or a.emulated else os.path.join(TOP, "bench", "results"))
    a.build, a.out, a.work = map(os.path.abspath, (a.build, a.out, a.work))
    a.programs = find(a.build, a.emulated)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    try:
        if a.names[0] == "list":
            for p in PARTS:
                print(f"{p.name:28} {p.group:12} {p.limit_s:4} s  {p.what}{' (sampled)' if p.sampled else ''}")
        elif a.names[0] == "build":
            build(a)
        elif a.names[0] == "pack":
            if len(a.names) != 2:
                stop("pack wants one folder")
            pack(a, a.names[1])
        elif a.names[0] == "table":
            summary(a, PARTS)
        else:
            return run_all(a, PARTS, named(PARTS, a.names))
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.modules["gpu"] = sys.modules["__main__"]        # gpu_parts imports it
    sys.exit(main())
