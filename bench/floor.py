#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How close whole sweeps, loading and converting come to what this machine allows.

    floor.py [--build build-bench] [--rows disk,gemm,dram,start,convert] [--shape opt-1.3b] [--work DIR]

The floor of a sweep (docs/design.md) is the slowest of its links: the bytes from disk at the disk's rate, and beside it the sum over
the linear layers of what each takes at its own number of rows. The rates are measured here, in turn with the runs:

  disk     all weights on disk, 16 sequences: bytes read / the best of fio's O_DIRECT reads of that file over blocks and depths
  gemm     weights in memory, 256 sequences: sum over the linear layers of ktest's time at M = 256
  dram     weights in memory, 1 sequence: weight bytes / the best rate at which ktest reads memory
  start    loading a resident model, cold / reading the same bytes at the best of fio's O_DIRECT rates
  convert  converting (a copy of the weights, fsynced), cold / reading the same bytes so, and then fio's writing them with O_DIRECT and fsync

Sequences begin with one token, so that attention is next to nothing; sweep times are those of decode sweeps. Needs fio for `disk`, `start` and `convert`.
Writes bench/results/floor.md and .json: medians, and min - max, of --repeats rounds.
"""
import argparse, json, os, shutil, statistics, subprocess, sys, tempfile, time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TOP, "bench"))
import disk
from kernels import COMMIT, processor

def generate(a, n, new, *options):
    """-> the report of n sequences of 1 + new tokens"""
    with open(f"{a.tmp}/job.jsonl", "w") as f:
        for i in range(n):
            f.write(json.dumps({"prompt": [5 + i], "max_tokens": new, "ignore_eos": True}) + "\n")
    subprocess.run([f"{a.build}/penstock", "generate", a.packed, f"{a.tmp}/job.jsonl", "-o", f"{a.tmp}/out.jsonl", "--overwrite", "--no-resume", "--progress", "none",
                    "--report", f"{a.tmp}/report.json", "--gpu-batch-size", str(n), "--num-gpu-batches", "1", *options], check=True, stderr=subprocess.DEVNULL)
    return json.load(open(f"{a.tmp}/report.json"))


def ktest(a, *options):
    out = f"{a.tmp}/ktest.json"
    subprocess.run([f"{a.build}/tests/ps-ktest", "--bench=400", "--op=linear", f"--threads={os.cpu_count()}", f"--json={out}", "--openblas=none", *options],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)       # no peers: none is named so
    return json.load(open(out))


def drop(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def timed(*cmd):
    begin = time.monotonic()
    subprocess.run(cmd, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - begin


# A row is a function that makes one round: seconds taken, seconds of the floor.

def read_rate(a):
    if not a.fio:               # once: which of fio's settings is the best for this file
        rates = [(disk.fio(a.weights, a.bytes, e, s), e, s) for e in ("io_uring", "io_uring+fixed", "libaio") for s in disk.SHAPES]
        a.fio = max(rates)[1:]
    return disk.fio(a.weights, a.bytes, *a.fio)


def sweep_s(report, new):
    return report["time"]["decode"] / (new - 1)


def row_disk(a):
    r = generate(a, 16, 12, "--weights", "disk:100")
    return sweep_s(r, 12), r["plan"]["realised"]["weights"]["disk"] / read_rate(a)


def row_gemm(a):
    c, m = a.config, 256
    h, ffn, layers = c["hidden_size"], c["ffn_dim"], c["num_hidden_layers"]
    s = sweep_s(generate(a, m, 12, "--weights", "host:100"), 12)
    each = {}
    for n, k in ((h, h), (ffn, h), (h, ffn), (c["vocab_size"], h)):
        each[n, k] = next(r["ns"] for r in ktest(a, f"--dims={m}x{n}x{k}", f"--shape={m}x{n}x{k} f16") if r["op"] == "linear") * 1e-9
    return s, layers * (4 * each[h, h] + each[ffn, h] + each[h, ffn]) + each[c["vocab_size"], h]


def row_dram(a):
    s = sweep_s(generate(a, 1, 64, "--weights", "host:100"), 64)
    rate = next(r["gb_per_s"] for r in ktest(a, "--dims=1x64x64", "--shape=none") if r["op"] == "limit") * 1e9
    return s, a.bytes / rate


def row_start(a):
    drop(a.weights)
    return generate(a, 1, 2, "--weights", "host:100")["time"]["load"], a.bytes / read_rate(a)


def write_s(a):
    out = subprocess.run(["fio", "--name=w", f"--filename={a.tmp}/copy", "--rw=write", "--direct=1", f"--size={a.bytes}", "--bs=1M", "--iodepth=16",
                          "--ioengine=io_uring", "--fallocate=none", "--end_fsync=1", "--output-format=json"], check=True, capture_output=True, text=True).stdout
    os.unlink(f"{a.tmp}/copy")
    return json.loads(out[out.index("{"):])["jobs"][0]["job_runtime"] * 1e-3


def row_convert(a):
    src, dst = f"{a.tmp}/src", f"{a.tmp}/converted"
    if not os.path.exists(src):
        os.mkdir(src)
        os.symlink(a.weights, f"{src}/model.safetensors")
        shutil.copy(f"{a.packed}/config.json", src)
    drop(a.weights)
    s = timed(f"{a.build}/penstock", "convert", src, dst)
    shutil.rmtree(dst)
    return s, a.bytes / read_rate(a) + write_s(a)


ROWS = {"disk": (row_disk, "a sweep, all weights on disk, 16 rows", "fio's best O_DIRECT reads"),
        "gemm": (row_gemm, "a sweep, weights in memory, 256 rows", "ktest's linear layers"),
        "dram": (row_dram, "a sweep, weights in memory, 1 row", "reading memory"),
        "start": (row_start, "loading a resident model", "fio's best O_DIRECT reads"),
        "convert": (row_convert, "convert", "fio's best reads, then fio's writes, fsynced")}


def spread(v, scale=1.0):
    return f"{statistics.median(v) * scale:.3f} ({min(v) * scale:.3f} - {max(v) * scale:.3f})"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--build", default="build-bench", help="a build with tests: meson setup build-bench; ninja -C build-bench")
    ap.add_argument("--rows", default=",".join(ROWS))
    ap.add_argument("--shape", default="opt-1.3b", help="a file of configs/models")
    ap.add_argument("--work", default=TOP, help="a folder on the disk to be measured")
    ap.add_argument("--repeats", type=int, default=5)
    ap.add_argument("--out", default=os.path.join(TOP, "bench/results/floor"))
    a = ap.parse_args()
    a.build, a.fio = os.path.abspath(a.build), None
    cfg = os.path.join(TOP, "configs/models", a.shape + ".json")
    a.config = json.load(open(cfg))
    a.tmp = tempfile.mkdtemp(prefix=".penstock-bench-", dir=a.work)
    taken = {r: [] for r in a.rows.split(",")}
    try:
        a.packed = f"{a.tmp}/model"
        subprocess.run([f"{a.build}/penstock", "convert", "--dummy", cfg, a.packed], check=True, stderr=subprocess.DEVNULL)
        a.weights = next(os.path.join(a.packed, f) for f in os.listdir(a.packed) if f.endswith(".safetensors"))
        a.bytes = os.path.getsize(a.weights)
        if shutil.disk_usage(a.work).free < 2 * a.bytes:
            sys.exit(f"floor.py: {a.work}: not twice {a.bytes >> 20} MiB free (--work says where)")
        load = os.getloadavg()[0]
        for i in range(a.repeats):
            for r in taken:
                taken[r].append(ROWS[r][0](a))
                print(f"# round {i + 1}, {r}: {taken[r][-1][0]:.3f} s, floor {taken[r][-1][1]:.3f} s", file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(a.tmp)
    lines = [f"# How close to the machine\n\n`bench/floor.py --repeats {a.repeats}`, {a.shape}, {processor()}, {os.cpu_count()} CPUs, load {load:.1f} before the run; commit {COMMIT}. "
             "Seconds, medians and (min - max); the ratio is of each round's two.\n",
             "| what | s | floor, s | floor is | time / floor |", "| --- | --- | --- | --- | --- |"]
    for r, v in taken.items():
        lines.append(f"| {ROWS[r][1]} | {spread([x[0] for x in v])} | {spread([x[1] for x in v])} | {ROWS[r][2]} | {spread([x[0] / x[1] for x in v])} |")
    open(a.out + ".md", "w").write("\n".join(lines) + "\n")
    json.dump({r: [{"s": x[0], "floor_s": x[1]} for x in v] for r, v in taken.items()}, open(a.out + ".json", "w"), indent=1)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
