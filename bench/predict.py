#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How well plans predict: whole jobs, simulated with this machine's profile and then run.

    predict.py PENSTOCK [--rows jobs,choices] [--repeats 3] [--only TEXT] [--profile FILE] [--work DIR]

Probes this machine (or takes --profile, which must be of it), then, for each of 24 jobs of shapes that the probe does not measure, runs `penstock generate`,
whose report has the time that its plan was predicted to take (docs/planning.md), and compares. Limited by disk, by linears, by memory, by KV; two
models; full and H2O; small and large batches; equal lengths and mixed ones. Weights are random (`penstock convert --dummy`), prompts
random token ids. Writes bench/results/predict.md and .json.

`choices`: for four jobs, every point of a grid of shapes and placements is run, then the best of them in turn with what the planner chooses on its own;
how much slower that is than the best point. Writes bench/results/choices.md and .json.
"""
import argparse, json, os, platform, random, shutil, statistics, subprocess, sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TOP, "bench"))
from kernels import COMMIT, processor

RESULTS = os.path.join(TOP, "bench", "results")
GIB = 1 << 30
HOST, DISK = ["--weights", "host:100"], ["--weights", "disk:100"]
KV_DISK = ["--kv", "disk:100"]
FULL, H2O = ["--kv-policy", "full"], ["--kv-policy", "h2o", "--kv-budget", "20%"]


def shape(slots, mbs):
    return ["--gpu-batch-size", str(slots), "--num-gpu-batches", str(mbs)]


def equal(n, prompt, gen):
    return [(prompt, gen)] * n


def mixed(n, prompt, gen, seed):
    """Log-normal lengths around these medians, as chat and batch jobs have them."""
    r = random.Random(seed)
    draw = lambda m: max(1, min(8 * m, round(r.lognormvariate(0, 0.8) * m)))
    return [(draw(prompt), draw(gen)) for _ in range(n)]


SMALL, LARGE = "opt-125m", "opt-1.3b"
# name, what limits it, model, lengths, options
CASES = [
    ("disk, 6 at once", "disk", LARGE, equal(6, 20, 12), DISK + FULL + shape(6, 1)),
    ("disk, 40 at once", "disk", LARGE, equal(40, 12, 8), DISK + FULL + shape(20, 2)),
    ("disk, 24 at once, H2O", "disk", LARGE, equal(24, 20, 8), DISK + H2O + shape(12, 2)),
    ("disk, half of the weights", "disk", LARGE, equal(10, 20, 16), ["--weights", "host:45,disk:55"] + FULL + shape(10, 1)),
    ("disk, small model", "disk", SMALL, equal(36, 24, 40), DISK + FULL + shape(36, 1)),
    ("disk, small model, mixed", "disk", SMALL, mixed(60, 30, 24, 1), DISK + H2O + shape(24, 2)),
    ("linears, prompts", "linears", LARGE, equal(12, 150, 2), HOST + FULL + shape(12, 1)),
    ("linears, prompts, H2O", "linears", LARGE, equal(10, 190, 3), HOST + H2O + shape(5, 2)),
    ("linears, 180 at once", "linears", LARGE, equal(180, 5, 6), HOST + FULL + shape(90, 2)),
    ("linears, small model", "linears", SMALL, equal(240, 60, 16), HOST + FULL + shape(120, 2)),
    ("linears, small model, long prompts", "linears", SMALL, equal(30, 700, 6), HOST + FULL + shape(10, 1)),
    ("linears, small model, mixed, H2O", "linears", SMALL, mixed(160, 80, 20, 2), HOST + H2O + shape(112, 1)),
    ("memory, 1 at once", "memory", LARGE, equal(1, 20, 60), HOST + FULL + shape(1, 1)),
    ("memory, 3 at once", "memory", LARGE, equal(3, 20, 60), HOST + FULL + shape(3, 1)),
    ("memory, 6 at once, H2O", "memory", LARGE, equal(6, 50, 60), HOST + H2O + shape(6, 1)),
    ("memory, 2 micro-batches of 2", "memory", LARGE, equal(4, 30, 40), HOST + FULL + shape(2, 2)),
    ("memory, small model", "memory", SMALL, equal(5, 30, 300), HOST + FULL + shape(5, 1)),
    ("memory, small model, mixed", "memory", SMALL, mixed(12, 40, 120, 3), HOST + FULL + shape(4, 1)),
    ("KV, 24 x 900 entries", "KV", SMALL, equal(24, 850, 90), HOST + FULL + shape(24, 1)),
    ("KV, 48 x 1200 entries, H2O", "KV", SMALL, equal(48, 1100, 100), HOST + H2O + shape(48, 1)),
    ("KV, large model", "KV", LARGE, equal(12, 400, 30), HOST + FULL + shape(12, 1)),
    ("KV on disk", "KV", SMALL, equal(40, 300, 60), HOST + KV_DISK + FULL + shape(10, 4)),
    ("KV on disk, H2O", "KV", SMALL, equal(60, 400, 80), HOST + KV_DISK + H2O + shape(15, 4)),
    ("KV on disk, mixed", "KV", LARGE, mixed(12, 50, 12, 4), HOST + KV_DISK + FULL + shape(3, 2)),
]


def write_job(path, lengths, vocab):
    r = random.Random(7)
    with open(path, "w") as f:
        for prompt, gen in lengths:
            f.write(json.dumps({"prompt": [2] + [r.randrange(5, vocab - 10) for _ in range(prompt - 1)], "max_tokens": gen, "ignore_eos": True}) + "\n")


def penstock(a, *args, fits=True):
    """-> stdout; None if it does not fit and need not"""
    p = subprocess.run([a.penstock, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "XDG_CACHE_HOME": a.cache})
    if p.returncode == 4 and not fits:
        return None
    if p.returncode:
        raise SystemExit(f"{' '.join(map(str, args))}: exit {p.returncode}\n{p.stderr[-2000:]}")
    return p.stdout


def model(a, name):
    packed = f"{a.work}/{name}"
    if not os.path.exists(packed):
        penstock(a, "convert", "--dummy", f"{TOP}/configs/models/{name}.json", packed)
    return packed


def cold(folder):
    for f in os.listdir(folder):
        fd = os.open(f"{folder}/{f}", os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def measure(a, packed, job, options, fits=True):
    """-> the report of a run with a cold model"""
    cold(packed)
    out = penstock(a, "generate", packed, job, "-o", f"{a.work}/out.jsonl", "--overwrite", "--no-resume", "--progress", "none", "--report", f"{a.work}/report.json",
                   *options, fits=fits)
    return None if out is None else json.load(open(f"{a.work}/report.json"))


def total(report):
    return report["time"]["prefill"] + report["time"]["decode"]


LINKS = ("disk_read", "disk_write", "h2d", "d2h")
TIERS = ("gpu", "host", "disk")


def differing(report):
    """-> what was predicted otherwise than it was: links, tiers and sweeps, of which all are to be equal"""
    said, links, taken = report["predicted"], report["links"], report["memory"]["taken"]
    return [k for k in LINKS if any(links[k][x] != said["links"][k][x] for x in ("bytes", "load_bytes"))] + [k for k in TIERS if taken[k] != said["memory"][k]] + \
        ["sweeps"] * (report["actual"]["sweeps"] != said["sweeps"])


def one(a, case):
    name, limit, shape_name, lengths, options = case
    packed, job = model(a, shape_name), f"{a.work}/job.jsonl"
    write_job(job, lengths, json.load(open(f"{TOP}/configs/models/{shape_name}.json"))["vocab_size"])
    options = options + ["--hidden", "host:100"]
    reports = [measure(a, packed, job, options) for _ in range(a.repeats)]
    times = [total(r) for r in reports]
    measured = statistics.median(times)
    predicted = reports[-1]["predicted"]["total_s"]
    r = {"name": name, "limit": limit, "model": shape_name, "options": options, "requests": len(lengths), "predicted_s": predicted, "measured_s": measured,
         "spread": [min(times), max(times)], "error": predicted / measured - 1, "differs": sorted({x for r in reports for x in differing(r)}), "report": reports[-1]}
    print(f"{name}: predicted {predicted:.2f} s, measured {measured:.2f} s ({min(times):.2f} - {max(times):.2f}), {100 * r['error']:+.1f} %{', differs: ' + ', '.join(r['differs']) if r['differs'] else ''}", file=sys.stderr, flush=True)
    return r


# ---------------------------------------------------------------- the planner's choice

def grid(**axes):
    """Every combination of the options of each axis."""
    points = [[]]
    for values in axes.values():
        points = [p + v for p in points for v in values]
    return points


SHAPES = [shape(n, k) for n, k in ((4, 1), (8, 1), (16, 1), (32, 1), (8, 4))]
# name, model, lengths, what is given, the grid
CHOICES = [
    ("weights do not fit", LARGE, equal(32, 12, 8), ["--host-mem", "1800M"], grid(shape=SHAPES, prefetch=[["--prefetch", "1"], ["--prefetch", "2"]])),
    ("all fits", LARGE, mixed(24, 16, 10, 5), ["--host-mem", "6G"], grid(shape=SHAPES, prompts=[["--prefill-tokens", "128"], ["--prefill-tokens", "1024"]])),
    ("KV does not fit", SMALL, equal(32, 300, 24), ["--host-mem", "450M"], grid(shape=SHAPES, kv=[["--kv", "host:100"], ["--kv", "disk:100"]])),
    ("neither fits, H2O", LARGE, equal(24, 40, 8), ["--host-mem", "500M", *H2O], grid(shape=SHAPES, kv=[["--kv", "host:100"], ["--kv", "disk:100"]])),
]


FINALISTS = 3


def choice(a, case):
    """All points once; then the best of them and the planner's own in turn, for a machine whose memory has better and worse minutes would choose among
    what ran once. Medians are of these rounds."""
    name, shape_name, lengths, given, points = case
    packed, job = model(a, shape_name), f"{a.work}/job.jsonl"
    write_job(job, lengths, json.load(open(f"{TOP}/configs/models/{shape_name}.json"))["vocab_size"])
    key = lambda p: " ".join(p) or "planner"
    once, plans = {}, {}
    for p in points:
        r = measure(a, packed, job, given + p, fits=False)
        once[key(p)] = "does not fit" if r is None else total(r)
    fit = [p for p in points if once[key(p)] != "does not fit"]
    last = [[]] + sorted(fit, key=lambda p: once[key(p)])[:FINALISTS]
    times = {key(p): [] for p in last}
    for i in range(a.repeats):
        for p in last[i % len(last):] + last[:i % len(last)]:
            r = measure(a, packed, job, given + p)
            times[key(p)].append(total(r))
            plans[key(p)] = r["plan"]
    ran = {k: statistics.median(v) for k, v in times.items()}
    own = ran.pop("planner")
    best = min(ran, key=ran.get)
    r = {"name": name, "model": shape_name, "given": given, "requests": len(lengths), "planner_s": own, "planner_runs": times["planner"], "chosen": plans["planner"], "best": best,
         "best_s": ran[best], "best_runs": times[best], "points": once, "rounds": times, "fit": len(fit), "slower": own / ran[best] - 1}
    print(f"{name}: planner {own:.2f} s, best of {len(fit)} points {ran[best]:.2f} s ({best}), {100 * r['slower']:+.1f} %", file=sys.stderr, flush=True)
    return r


def write_choices(a, rows):
    lines = ["# The planner's choice and the best of a grid", "",
             f"{platform.machine()}, {processor()}, {os.cpu_count()} cores, commit {COMMIT}. Every point once, then the best {FINALISTS} and the planner's own in turn: medians and (min - max) of "
             f"{a.repeats} rounds. Negative: the planner found something faster than every point.", "",
             "| job | planner s | best point s | which | points that fit | planner slower by |", "| --- | --- | --- | --- | --- | --- |"]
    span = lambda v: f"{statistics.median(v):.2f} ({min(v):.2f} - {max(v):.2f})"
    for r in rows:
        lines.append(f"| {r['model']}, {r['name']} ({' '.join(r['given'])}) | {span(r['planner_runs'])} | {span(r['best_runs'])} | `{r['best']}` | {r['fit']} of {len(r['points'])} | "
                     f"{100 * r['slower']:+.1f} % |")
    save(a, "choices", lines, rows)


def save(a, name, lines, rows):
    if a.only:
        return
    with open(f"{RESULTS}/{name}.md", "w") as f:
        f.write("\n".join(lines) + "\n")
    with open(f"{RESULTS}/{name}.json", "w") as f:
        json.dump(rows, f, indent=1)
    print("\n".join(lines))


def read(report):
    """GB read from disk, and of them by loading"""
    x = report["links"]["disk_read"]
    return f"{x['bytes'] / 1e9:.3f} ({x['load_bytes'] / 1e9:.3f} loading)"


def beside(report):
    """MiB of the process that are not the arena's"""
    return (report["memory"]["peak"]["host"] - report["memory"]["taken"]["host"]) / 2**20


def write(a, rows):
    errors = [abs(r["error"]) for r in rows]
    lines = [f"# Predicted and measured: {len(rows)} jobs", "",
             f"{platform.machine()}, {processor()}, {os.cpu_count()} cores, commit {COMMIT}. Profile by `penstock probe` just before; medians and (min - max) of {a.repeats} runs. "
             "Times are of prefill and decode, without loading.", "",
             f"Median error {100 * statistics.median(errors):.1f} %, worst {100 * max(errors):.1f} %. Bytes on each link, sweeps, and memory taken of each tier: as predicted in "
             f"{sum(not r['differs'] for r in rows)} of {len(rows)} jobs. The processes took at most {max(beside(r['report']) for r in rows):.0f} MiB of memory beside their arenas.", "",
             "| job | limit | predicted s | measured s | error | runs' spread | GB read from disk, predicted / done | bytes |", "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for r in rows:
        lo, hi = r["spread"]
        lines.append(f"| {r['model']}: {r['name']} | {r['limit']} | {r['predicted_s']:.2f} | {r['measured_s']:.2f} ({lo:.2f} - {hi:.2f}) | {100 * r['error']:+.1f} % | "
                     f"{100 * (hi - lo) / r['measured_s']:.1f} % | {read(r['report']['predicted'])} / {read(r['report'])} | {', '.join(r['differs']) or 'equal'} |")
    save(a, "predict", lines, rows)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("penstock")
    ap.add_argument("--repeats", type=int, default=3, help="runs of each job")
    ap.add_argument("--rows", default="jobs,choices")
    ap.add_argument("--only", default="", help="jobs whose name contains this; no results are written")
    ap.add_argument("--profile", help="instead of probing")
    ap.add_argument("--work", default=os.path.join(TOP, "build", "bench-predict"), help="where models and results go while it runs")
    a = ap.parse_args()
    a.penstock, a.work = os.path.abspath(a.penstock), os.path.abspath(a.work)
    os.makedirs(a.work, exist_ok=True)
    free = shutil.disk_usage(a.work).free
    if free < 8 * GIB:
        raise SystemExit(f"{a.work}: {free / GIB:.1f} GiB free; this wants 8 (--work says where)")
    a.cache = f"{a.work}/cache"             # where generate and plan look for the profile of this machine
    os.makedirs(f"{a.cache}/penstock", exist_ok=True)
    if a.profile:
        shutil.copyfile(a.profile, f"{a.cache}/penstock/hardware.json")
    for name in (SMALL, LARGE):
        model(a, name)
    if not a.profile:
        penstock(a, "probe", "--offload-dir", a.work, "--reads", f"{a.work}/{LARGE}/weights-00001-of-00001.safetensors")
    if "jobs" in a.rows:
        write(a, [one(a, c) for c in CASES if a.only in c[0]])
    if "choices" in a.rows:
        write_choices(a, [choice(a, c) for c in CHOICES if a.only in c[0]])
    return 0


if __name__ == "__main__":
    sys.exit(main())
