#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles kernels/cuda for every GPU generation that nvcc knows from sm_75 on, warnings as errors, and writes what each kernel takes there
into bench/results/cuda-kernels.md: registers, spills, shared memory, and the share of an SM's warps that can be resident at once.

    cuda_table.py BUILD [--nvcc NVCC] [--arch 75,90] [--check] [--jobs N]

BUILD is a build folder of meson (for ps_config.h). --check compares with the table that is there and writes nothing: exit 1 when they differ.
"""
import argparse, concurrent.futures, glob, os, re, shutil, subprocess, sys, tempfile

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TABLE = os.path.join(TOP, "bench/results/cuda-kernels.md")

# Per SM: warps and blocks resident at most, KiB of shared memory (CUDA C++ Programming Guide, technical specifications per compute capability;
# blocks also in cuda_occupancy.h). All have 65,536 registers, handed out to a warp in pieces of 256.
SM = {
    75: (32, 16, 64), 80: (64, 32, 164), 86: (48, 16, 100), 87: (48, 16, 164), 88: (48, 16, 100), 89: (48, 24, 100), 90: (64, 32, 228),
    100: (64, 32, 228), 103: (64, 32, 228), 110: (48, 24, 228), 120: (48, 24, 100), 121: (48, 24, 100),
}
REGISTERS, PIECE, SHARED_PIECE = 65536, 256, 128


def occupancy(arch, block, registers, shared):
    warps_max, blocks_max, kib = SM[arch]
    warps = (block + 31) // 32
    a_warp = -(-registers * 32 // PIECE) * PIECE
    taken = -(-(shared + (1024 if arch >= 80 else 0)) // SHARED_PIECE) * SHARED_PIECE
    blocks = min(blocks_max, warps_max // warps, REGISTERS // a_warp // 4 * 4 // warps)
    if taken:
        blocks = min(blocks, kib * 1024 // taken)
    return 100 * blocks * warps // warps_max


def block_of(source):
    """Every file's kernels have one block size, its constant BLOCK."""
    found = re.search(r"constexpr uint32_t BLOCK = (\d+)", open(source).read())
    return int(found.group(1)) if found else None


def compile_one(nvcc, build, source, arch):
    with tempfile.TemporaryDirectory() as d:
        p = subprocess.run([nvcc, "-cubin", source, "-o", f"{d}/k.cubin", f"-arch=sm_{arch}", "-std=c++17", "-O3", "-lineinfo", "--extended-lambda",
                            "-Werror=all-warnings", "-Xptxas=-v", f"-I{TOP}", f"-I{build}"], capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"{source} for sm_{arch}:\n{p.stderr}")
    rows, name = [], None
    for line in p.stderr.splitlines():
        if m := re.search(r"Compiling entry function '(\w+)'", line):
            name = m.group(1)
        elif m := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            stack, spill = int(m.group(1)), int(m.group(2)) + int(m.group(3))
        elif name and (m := re.search(r"Used (\d+) registers", line)):
            shared = re.search(r"(\d+) bytes smem", line)
            rows.append((name, arch, int(m.group(1)), spill, stack, int(shared.group(1)) if shared else 0))
            name = None
    return source, rows


def short(mangled):
    """-> kernel<types> without its parameters"""
    full = subprocess.run(["c++filt", mangled], capture_output=True, text=True).stdout.strip()
    full = re.sub(r"\((int|unsigned int)\)", "", full)
    name = full[:full.rfind("(")]
    return re.sub(r"^void ", "", name).replace("__nv_bfloat16", "bf16").replace("__half", "f16").replace("float", "f32")


def table(nvcc, build, archs, jobs):
    sources = [s for s in sorted(glob.glob(f"{TOP}/kernels/cuda/*.cu")) if block_of(s)]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        done = list(pool.map(lambda job: compile_one(nvcc, build, *job), [(s, a) for s in sources for a in archs]))
    kernels = {}
    for source, rows in done:
        for name, arch, *what in rows:
            kernels.setdefault((os.path.basename(source), short(name)), {})[arch] = (block_of(source), *what)
    version = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout
    out = ["# What the CUDA kernels take", "",
           f"Written by scripts/cuda_table.py, nvcc {re.search(r'release ([0-9.]+)', version).group(1)}. Compiled only: nothing here was measured on a GPU.",
           "Each cell: registers / bytes of shared memory / theoretical occupancy in % (warps that can be resident at once). Spills and local memory (bytes) are",
           "named where there are any.", "",
           "| file | kernel | block | " + " | ".join(f"sm_{a}" for a in archs) + " |", "| --- | --- | --- |" + " --- |" * len(archs)]
    for (source, name), by_arch in sorted(kernels.items()):
        cells = []
        for a in archs:
            block, registers, spill, stack, shared = by_arch[a]
            cell = f"{registers} / {shared} / {occupancy(a, block, registers, shared)}"
            cells.append(cell + (f", spills {spill}" if spill else "") + (f", local {stack}" if stack else ""))
        out.append(f"| {source} | `{name}` | {block} | " + " | ".join(cells) + " |")
    return "\n".join(out) + "\n"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("build")
    ap.add_argument("--nvcc", default=shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    ap.add_argument("--arch", help="default: all from 75 on that nvcc knows")
    ap.add_argument("--check", action="store_true")
    ap.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    a = ap.parse_args()
    known = subprocess.run([a.nvcc, "--list-gpu-arch"], capture_output=True, text=True, check=True).stdout
    archs = [int(x) for x in a.arch.split(",")] if a.arch else sorted(int(x) for x in re.findall(r"compute_(\d+)\b", known) if int(x) >= 75)
    unknown = [x for x in archs if x not in SM]
    if unknown:
        sys.exit(f"cuda_table.py: say in SM what sm_{unknown[0]} has")
    text = table(a.nvcc, os.path.abspath(a.build), archs, a.jobs)
    if not a.check:
        open(TABLE, "w").write(text)
        return 0
    kept, release = open(TABLE).read(), re.compile(r"nvcc [0-9.]+")
    if release.search(kept)[0] != release.search(text)[0]:
        print(f"{TABLE} is of {release.search(kept)[0]}, this is {release.search(text)[0]}: compiled, not compared")
        return 0
    if kept == text:
        return 0
    print(f"{TABLE} is not what kernels/cuda compiles to: run scripts/cuda_table.py and look at the difference")
    return 1


if __name__ == "__main__":
    sys.exit(main())
