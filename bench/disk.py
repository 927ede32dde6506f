#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Disk streaming beside fio: O_DIRECT reads of one file, through Penstock's device and by fio.

First fio is run once over engines, block sizes and depths; then its best few and Penstock (io_uring and pread stores,
the engine's own transfer size and depth) alternate, and medians are compared. Needs fio. The file is made, read and removed.

    bench/disk.py --build build-bench --folder . --size 2G
"""
import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from kernels import COMMIT

ENGINES = {
    'io_uring': ['--ioengine=io_uring'],
    'io_uring+fixed': ['--ioengine=io_uring', '--fixedbufs=1', '--registerfiles=1', '--nonvectored=1'],
    'libaio': ['--ioengine=libaio'],
}
SHAPES = [(131072, 64), (131072, 256), (262144, 32), (262144, 128), (524288, 32), (1 << 20, 8),
          (1 << 20, 16), (1 << 20, 64), (4 << 20, 8), (4 << 20, 16)]


def size(text):
    return int(text[:-1]) << {'K': 10, 'M': 20, 'G': 30}[text[-1]] if text[-1] in 'KMG' else int(text)


def make_file(path, n):
    """Written with O_DIRECT, so that the page cache holds nothing of it; random, so that nothing compresses it."""
    src = subprocess.Popen(['head', '-c', str(n), '/dev/urandom'], stdout=subprocess.PIPE)
    subprocess.run(['dd', f'of={path}', 'bs=4M', 'iflag=fullblock', 'oflag=direct', 'conv=fsync', 'status=none'],
                   stdin=src.stdout, check=True)
    if src.wait() or os.stat(path).st_size != n:
        sys.exit(f'disk.py: could not write {path}')


def fio(path, n, engine, shape):
    cmd = ['fio', '--name=r', f'--filename={path}', '--rw=read', '--direct=1', '--readonly', f'--size={n}',
           f'--bs={shape[0]}', f'--iodepth={shape[1]}', '--output-format=json', *ENGINES[engine]]
    out = subprocess.run(cmd, check=True, capture_output=True, text=True).stdout
    return json.loads(out[out.index('{'):])['jobs'][0]['read']['bw_bytes']


def penstock(exe, path, n, store):
    out = subprocess.run([exe, path, '--bytes', str(n), '--store', store], check=True, capture_output=True, text=True).stdout
    return json.loads(out)


def spread(x):
    return f'{min(x) / 1e9:.2f}-{max(x) / 1e9:.2f}'


def measure(exe, path, n, repeats, keep):
    sweep = []
    for engine in ENGINES:
        for shape in SHAPES:
            sweep.append((fio(path, n, engine, shape), engine, shape))
    sweep.sort(reverse=True)
    best = [(e, s) for _, e, s in sweep[:keep]]
    rates = {('fio', *b): [] for b in best} | {('penstock', s): [] for s in ('uring', 'pread')}
    runs = []
    for _ in range(repeats):
        for key in rates:
            if key[0] == 'fio':
                rates[key].append(fio(path, n, key[1], key[2]))
            else:
                run = penstock(exe, path, n, key[1])
                runs.append(run)
                rates[key].append(run['bytes_per_s'])
    return sweep, rates, runs


def table(rates, runs, n, repeats):
    fio_best = max(statistics.median(v) for k, v in rates.items() if k[0] == 'fio')
    lines = ['| reader | block | depth | GB/s, median | min-max | of fio\'s best |', '| --- | --- | --- | --- | --- | --- |']
    for key, v in sorted(rates.items(), key=lambda kv: -statistics.median(kv[1])):
        m = statistics.median(v)
        block, depth = (f'{key[2][0] >> 10}K', key[2][1]) if key[0] == 'fio' else ('own', 'own')
        lines.append(f'| {key[0]} {key[1]} | {block} | {depth} | {m / 1e9:.2f} | {spread(v)} | {m / fio_best:.0%} |')
    cpu = statistics.median(r['cpu_s'] / r['s'] for r in runs if r['store'] == 'uring')
    lines += ['', f'{repeats} rounds, alternating, each a whole read of a {n / 1e9:.2f} GB file. '
              f'Processor time of the io_uring reader: {cpu:.1%} of one core.']
    return '\n'.join(lines)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--build', default='build-bench', help='a build with tests: meson setup build-bench')
    ap.add_argument('--folder', default='.', help='where the file is made')
    ap.add_argument('--size', type=size, default='2G')
    ap.add_argument('--repeats', type=int, default=7)
    ap.add_argument('--keep', type=int, default=4, help='fio settings that are repeated')
    ap.add_argument('--out', default='bench/results/disk-read')
    a = ap.parse_args()
    exe = str(Path(a.build) / 'bench' / 'bench-disk-read')
    if not os.access(exe, os.X_OK):
        sys.exit(f'disk.py: {exe} is not there: meson setup {a.build} && ninja -C {a.build}')
    if not shutil.which('fio'):
        sys.exit('disk.py: needs fio (apt install fio)')
    free = shutil.disk_usage(a.folder).free
    if free < 4 * a.size:
        sys.exit(f'disk.py: {a.folder} has {free >> 20} MiB free; four times --size is asked for')
    fd, path = tempfile.mkstemp(prefix='.penstock-bench-', dir=a.folder)
    os.close(fd)
    try:
        make_file(path, a.size)
        sweep, rates, runs = measure(exe, path, a.size, a.repeats, a.keep)
    finally:
        os.unlink(path)
    text = table(rates, runs, a.size, a.repeats)
    print(text)
    out = Path(a.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    cpus = os.cpu_count()
    head = f'# Disk streaming beside fio\n\n`bench/disk.py --size {a.size >> 30}G --repeats {a.repeats}`, {platform.release()}, {cpus} CPUs, load {os.getloadavg()[0]:.1f}, commit {COMMIT}\n\n'
    out.with_suffix('.md').write_text(head + text + '\n')
    out.with_suffix('.json').write_text(json.dumps({
        'file_bytes': a.size,
        'fio_sweep': [{'engine': e, 'block': s[0], 'depth': s[1], 'bytes_per_s': r} for r, e, s in sweep],
        'rounds': [{'reader': ' '.join(map(str, k)), 'bytes_per_s': v} for k, v in rates.items()],
    }, indent=1) + '\n')


if __name__ == '__main__':
    main()
