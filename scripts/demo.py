#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The demo: a batch job on the model that comes with the project, with its weights streamed from disk under a memory budget
smaller than the model, first with the whole KV cache, then with H2O at 20 %. `./run.sh demo` calls it.

    demo.py BUILD_FOLDER [--host-mem SIZE]
"""
import json, os, shutil, subprocess, sys, textwrap

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODEL = os.path.join(TOP, "models", "demo-opt")
SHOW = ("tale-02", "tale-15", "tale-40")
MEM = "10M"


def program(build):
    path = os.path.abspath(f"{build}/penstock")
    if os.path.exists(path):
        return path
    sys.exit(f"{build}: no penstock program; ./run.sh build makes it")


def say(cmd):
    print("\n$ " + " ".join(os.path.relpath(c, TOP) if c.startswith(TOP) else c for c in cmd), flush=True)


def limited_by(report):
    """What limited the run, as the report has it, and where its time went."""
    wait, disk = report["wait_s"], report["links"]["disk_read"]
    return (f"limited by {report['limited_by'] or 'nothing that took a tenth of the time'}; of {report['time']['total']:.2f} s the processor computed for "
            f"{wait['compute']:.2f} s and waited for weights for {wait['weights']:.2f} s, for KV {wait['kv']:.2f} s; "
            f"{disk['bytes'] / 1e6:.0f} MB were read from the disk")


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else os.path.join(TOP, "build")
    mem = sys.argv[sys.argv.index("--host-mem") + 1] if "--host-mem" in sys.argv else MEM
    exe, work = program(build), os.path.join(os.path.abspath(build), "demo")
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    packed = os.path.join(work, "demo-opt.pack")
    cmd = [exe, "convert", MODEL, packed]
    say(cmd)
    subprocess.run(cmd, check=True)
    size = sum(os.path.getsize(os.path.join(packed, f)) for f in os.listdir(packed) if f.endswith(".safetensors"))
    print(f"\nThe model takes {size / 1e6:.1f} MB; the jobs below get --host-mem {mem}.")
    rows = []
    for name, options in (("full", ["--kv-policy", "full"]), ("h2o 20 %", ["--kv-policy", "h2o", "--kv-budget", "20%"])):
        out, rep = os.path.join(work, name.split()[0] + ".jsonl"), os.path.join(work, name.split()[0] + "-report.json")
        cmd = [exe, "generate", packed, os.path.join(MODEL, "prompts.jsonl"), "-o", out, "--host-mem", mem, *options, "--report", rep]
        say(cmd)
        subprocess.run(cmd, check=True)
        rows.append((name, json.load(open(rep)), {json.loads(x)["custom_id"]: json.loads(x) for x in open(out, encoding="utf-8")}))
    print("\nSome results (a 6 M parameter model writes English-looking sentences and knows nothing):")
    prompts = {r["custom_id"]: r["body"]["prompt"] for r in map(json.loads, open(os.path.join(MODEL, "prompts.jsonl"), encoding="utf-8"))}
    for cid in SHOW:
        print(f"\n  {cid}: {prompts[cid]}")
        for name, _, recs in rows:
            text = " ".join(recs[cid]["response"]["body"]["choices"][0]["text"].split())
            print(textwrap.indent(textwrap.fill(f"[{name}] ... {text}", 110), "    "))
    print(f"\n  {'':10} {'requests':>8} {'tokens':>7} {'tokens/s':>9} {'KV a sequence':>14} {'slots':>6}")
    for name, r, _ in rows:
        kv = r["kv"].get("bytes_per_sequence")
        plan = r["plan"]
        slots = (plan.get("batch") or plan).get("slots") or (plan.get("gpu_batch_size") or 0) * (plan.get("num_gpu_batches") or 0)
        print(f"  {name:10} {r['job']['requests']:8} {r['job']['generated_tokens']:7} {r['throughput']['total']:9.0f} "
              f"{'%.0f kB' % (kv / 1e3) if kv else '?':>14} {slots or '?':>6}")
    for name, r, _ in rows:
        print(f"\n  {name}: {limited_by(r)}.")
    print(f"\nEverything is in {os.path.relpath(work, os.getcwd())}: results, reports, the packed model.")


if __name__ == "__main__":
    main()
