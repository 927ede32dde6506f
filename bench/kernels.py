#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernels beside their peers and the machine's own limits (fused multiply-adds, reading memory).

linear: beside OpenBLAS and MKL, which multiply f32 weights; ours are read as they lie in a checkpoint. MKL comes from PyPI
(`pip install mkl`): give its libmkl_rt.so. attn_decode: H2O (scores, victim, write in place) beside the same attention without.
Builds, runs `ktest --bench --full` once (rows, peers and limits are sampled in turn) and writes a table.

    bench/kernels.py --build build-bench --mkl .venv/lib/libmkl_rt.so.3
    bench/kernels.py --build build-bench --op attn_decode
"""
import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path


def processor():
    for line in Path('/proc/cpuinfo').read_text().splitlines():
        if line.startswith('model name'):
            name = line.split(':', 1)[1].strip()
            break
    else:
        name = platform.machine()
    flags = Path('/proc/cpuinfo').read_text()
    return f"{name} ({'AVX-512' if 'avx512f' in flags else 'AVX2' if 'avx2' in flags else 'scalar'})"


def commit():
    """What a table is made of: the commit, and whether files that it has were changed, results aside; `unknown` without git."""
    top = Path(__file__).resolve().parent.parent

    def git(*cmd):
        env = {**os.environ, 'GIT_CEILING_DIRECTORIES': str(top.parent)}       # a repository around an unpacked archive is another one
        return subprocess.run(['git', '-C', str(top), *cmd], check=True, capture_output=True, text=True, env=env).stdout.strip()

    try:
        changed = git('status', '--porcelain', '--untracked-files=no', '--', '.', ':!bench/results')
        return git('rev-parse', '--short=12', 'HEAD') + (', with changes' if changed else '')
    except (OSError, subprocess.CalledProcessError):
        return 'unknown'


COMMIT = commit()                       # as a run begins


def run(args):
    exe = Path(args.build) / 'tests/ps-ktest'
    with tempfile.NamedTemporaryFile(suffix='.json') as out:
        cmd = [str(exe), f'--bench={args.ms}', f'--op={args.op}', f'--threads={args.threads}', f'--json={out.name}', f'--shape={args.shape}']
        cmd += ['--full'] if not args.quick else []
        cmd += ['--cpu-time'] if args.cpu_time else []
        cmd += [f'--mkl={args.mkl}'] if args.mkl else []
        cmd += [f'--openblas={args.openblas}'] if args.openblas else []
        env = {k: v for k, v in os.environ.items() if not k.startswith('OPENBLAS_')}     # ktest chooses the core type
        if args.threads == 1:
            env.setdefault('MKL_THREADING_LAYER', 'SEQUENTIAL')
        text = subprocess.run(cmd, stdout=subprocess.PIPE, text=True, env=env)
        if text.returncode:
            sys.exit(f'kernels.py: {exe} failed with {text.returncode}')
        print(text.stdout)
        return json.loads(Path(out.name).read_text())


def limit_of(records):
    return next(r for r in records if r['op'] == 'limit')


def attn_table(records):
    out = ['| head_dim, sequences x entries | without scores, GB/s | of reading memory beside it | H2O, GB/s | H2O / without, time |', '| --- | --- | --- | --- | --- |']
    for r in records:
        if r['op'] == 'attn_decode' and r['peer']:
            ratio = r['ns'] / r['peer_ns']
            kv = 4.0 * int(r['shape'].split('_')[1][1:])            # K and V of an entry, f16; H2O: its position, and its score read and written
            plain = r['gb_per_s'] * ratio * kv / (kv + 12)
            out.append(f"| {r['shape']} | {plain:.1f} | {100 * plain / r['read_gb_per_s']:.0f}% | {r['gb_per_s']:.1f} | {ratio:.3f} |")
    return out


def linear_table(records):
    """One row a shape; the rate that each row is held against is named."""
    limit = limit_of(records)
    rows, peers = {}, {}
    for r in records:
        if r['op'] != 'limit':
            rows[r['row'], r['shape']] = r
            if r['peer']:
                peers.setdefault((r['row'], r['shape']), []).append((r['peer'], r['peer_ns'] / r['ns']))
    own = {}
    for (row, shape), r in rows.items():
        dims, t = shape.split()
        m, n, k = map(int, dims.split('x'))
        if m == 256:
            own[row, n, k, t] = r['gflops']
    out = ['| M x N x K, weights | GFLOP/s | GB/s | beside |', '| --- | --- | --- | --- |']
    for (row, shape), r in rows.items():
        dims, t = shape.split()
        m, n, k = map(int, dims.split('x'))
        if (row, shape) in peers:
            beside = ', '.join(f'{ratio:.2f} x {p}' for p, ratio in peers[row, shape])
        elif m <= 4:
            beside = f"{100 * r['gb_per_s'] / r.get('read_gb_per_s', limit['gb_per_s']):.0f}% of reading memory beside it"
        elif (row, n, k, t) in own:
            roof = r['gflops'] / r['gb_per_s'] * r.get('read_gb_per_s', limit['gb_per_s'])
            beside = f"{100 * r['gflops'] / min(roof, own[row, n, k, t]):.0f}% of min(memory's roofline, own rate at M = 256)"
        else:
            beside = ''
        out.append(f"| {dims.replace('x', ' x ')}, {t} | {r['gflops']:.1f} | {r['gb_per_s']:.1f} | {beside} |")
    return out


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--build', default='build-bench', help='a build with tests: meson setup build-bench')
    ap.add_argument('--op', choices=['linear', 'attn_decode'], default='linear')
    ap.add_argument('--mkl', help='libmkl_rt.so of PyPI\'s mkl')
    ap.add_argument('--openblas', help='another libopenblas.so')
    ap.add_argument('--threads', type=int, default=os.cpu_count())
    ap.add_argument('--ms', type=int, default=1500, help='time per shape, 5 to 25 samples')
    ap.add_argument('--shape', default='*', help='only shapes like this, as "2048x*f16"')
    ap.add_argument('--quick', action='store_true', help='small working sets')
    ap.add_argument('--cpu-time', action='store_true', help='processor time, for a busy machine; one thread only')
    ap.add_argument('--out', default=str(Path(__file__).parent / 'results'))
    args = ap.parse_args()
    if args.cpu_time and args.threads != 1:
        sys.exit('kernels.py: --cpu-time compares single threads: add --threads 1')
    if not (Path(args.build) / 'build.ninja').exists():
        sys.exit(f'kernels.py: {args.build} is no build folder: meson setup {args.build}')
    subprocess.run(['ninja', '-C', args.build, 'tests/ps-ktest'], check=True, stdout=subprocess.DEVNULL)
    load = os.getloadavg()[0]
    records = run(args)
    limit, lines = limit_of(records), (linear_table if args.op == 'linear' else attn_table)(records)
    name = f"{args.op}-{args.threads}-thread{'s' if args.threads > 1 else ''}"
    head = [f'# {args.op}, {args.threads} thread{"s" if args.threads > 1 else ""}', '',
            f"{processor()}, {os.cpu_count()} CPUs, load {load:.1f} before the run; commit {COMMIT}. "
            f"{'Processor time of one thread (the machine was busy)' if args.cpu_time else 'Wall time'}; "
            'medians; rows, peers and limits in turn in one run. More than 1.00 x: faster than the peer.',
            '', f"Limits measured in the run: {limit['gflops']:.1f} GFLOP/s, {limit['gb_per_s']:.2f} GB/s read.", '']
    Path(args.out).mkdir(parents=True, exist_ok=True)
    (Path(args.out) / f'{name}.md').write_text('\n'.join(head + lines) + '\n')
    (Path(args.out) / f'{name}.json').write_text('[\n' + ',\n'.join(json.dumps(r) for r in records) + '\n]\n')
    print('\n'.join(head + lines))


if __name__ == '__main__':
    main()
