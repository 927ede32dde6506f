#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The throughput tables of the FlexGen and H2O papers, published beside predicted.

    papers.py [--penstock build/penstock] [--hardware configs/hardware/t4-gcp.json] [--requests 2048] [--out bench/results/papers]

Nothing here runs a model, and nothing needs a GPU: every figure that is not quoted from a paper is computed.

  (a) FlexGen's own schedule, by FlexGen's own cost model and the constants that its authors fitted on their T4 machine: equations and constants of
      experimental/cost_model.py, FlexLLMGen 004ffef; policies of their benchmark suites. H2O's fork is the same with fewer KV entries.
      Then, with --penstock, that schedule run by Penstock's scheduler on a virtual clock: `penstock bench --barrier --no-continuous` on a machine with those constants.
  (b) Penstock: `penstock plan` for the same machine, which runs Penstock's scheduler on a virtual clock, with as many KV entries. Also with --penstock.

Writes OUT.md and OUT.json.
"""
import argparse, dataclasses, json, math, os, shlex, subprocess, sys, tempfile

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TOP, "bench"))
from kernels import COMMIT

GIB, T = 1 << 30, 1e12


@dataclasses.dataclass(frozen=True)
class Row:
    """A published figure: tokens/s over prefill and decode together, of one block."""
    paper: str
    model: str
    prompt: int
    gen: int
    slots: int              # FlexGen's gpu_batch_size
    batches: int            # and num_gpu_batches
    percent: tuple          # weights, KV, hidden states: on the GPU, on the host; the rest is on disk
    published: float
    ratio: float = 0        # H2O: heavy hitters, and as many recent entries, over the prompt's length; 0 = full
    projected: bool = True  # from the first decode step (their debug mode fewer_batch), not run whole

    @property
    def kept(self):
        return 2 * int(self.prompt * self.ratio)

    @property
    def disk(self):
        return self.percent[0] + self.percent[1] < 100 or self.percent[2] + self.percent[3] < 100


GPU, HOST, MIXED, DISK = (100, 0, 100, 0, 100, 0), (0, 100, 0, 100, 0, 100), (20, 80, 0, 100, 0, 100), (0, 50, 0, 0, 0, 100)
FLEXGEN, H2O = "FlexGen, table 2", "H2O, table 3"
ROWS = [
    Row(FLEXGEN, "opt-6.7b", 512, 32, 2, 1, GPU, 25.26, projected=False),
    Row(FLEXGEN, "opt-30b", 512, 32, 48, 3, MIXED, 7.32),
    Row(FLEXGEN, "opt-175b", 512, 32, 32, 8, DISK, 0.69),
    Row(FLEXGEN, "opt-6.7b", 1024, 32, 1, 1, GPU, 13.72, projected=False),
    Row(FLEXGEN, "opt-30b", 1024, 32, 20, 4, (4, 96, 0, 100, 0, 100), 3.50),
    Row(FLEXGEN, "opt-175b", 1024, 32, 12, 12, DISK, 0.35),
    Row(H2O, "opt-6.7b", 512, 32, 2, 1, GPU, 20.2, projected=False),
    Row(H2O, "opt-6.7b", 512, 32, 4, 1, GPU, 35.1, 0.1, False),
    Row(H2O, "opt-6.7b", 512, 512, 1, 1, GPU, 16.8, projected=False),
    Row(H2O, "opt-6.7b", 512, 512, 4, 1, GPU, 51.7, 0.2, False),
    Row(H2O, "opt-6.7b", 512, 1024, 1, 1, GPU, 16.9, projected=False),
    Row(H2O, "opt-6.7b", 512, 1024, 4, 1, GPU, 52.1, 0.3, False),
    Row(H2O, "opt-30b", 512, 32, 48, 3, MIXED, 8.1),
    Row(H2O, "opt-30b", 512, 32, 52, 14, HOST, 12.7, 0.1),
    Row(H2O, "opt-30b", 512, 512, 40, 2, MIXED, 8.5),
    Row(H2O, "opt-30b", 512, 512, 52, 8, HOST, 18.83, 0.2),
    Row(H2O, "opt-30b", 512, 1024, 48, 1, MIXED, 7.1),
    Row(H2O, "opt-30b", 512, 1024, 44, 6, HOST, 13.82, 0.3),
]


# ---------------------------------------------------------------- (a) FlexGen's cost model

@dataclasses.dataclass(frozen=True)
class Fitted:
    """Constants of class CostModelConfig: bytes/s and flop/s of a T4 on Google's cloud. _p: prefill, _g: generation."""
    to_gpu: float = 12.89 * GIB
    kv_from_gpu: float = 0.97 * GIB
    hidden_from_gpu: float = 4.82 * GIB
    disk_read: float = 0.473 * GIB
    kv_write_p: float = 0.746 * GIB
    hidden_write_p: float = 2.015 * GIB
    write_g: float = 2.015 * GIB
    matmul_p: float = 21.24 * T
    matmul_g: float = 4.3 * T
    attention_p: float = 9.97 * T
    attention_g: float = 0.079 * T
    cpu: float = 0.0123 * T
    gpu_mem: float = math.inf       # not in their model: bytes/s at which weights are read where they lie


# What the model leaves out or has wrong, with its source.
T4_MEM = 220e9          # measured: Jia et al. 2019, arXiv:1903.07486 (69 % of the 320e9 of the data sheet)
CACHE_READ_S = 7046     # FlexGen's table 8: reading KV in OPT-175B's 31 decode steps at 512 + 32
DISK_WRITE = 1e9        # FlexGen's paper, section 6.1: the disk writes 1 GB/s, and reads 2


def shape(model):
    c = json.load(open(os.path.join(TOP, "configs/models", model + ".json")))
    return c["num_hidden_layers"], c["hidden_size"], c["ffn_dim"]


def cpu_rate(c, slots, h1):
    few, narrow = max(0, math.log2(64 / slots)), max(0, math.log2(4096 / h1))
    return c.cpu * max(0.1, 1 + 0.0168 * few * narrow - 0.0328 * few - 0.0621 * narrow)


def flexgen(r, c=Fitted(), first=False):
    """-> prefill seconds, decode seconds, and what each is made of, per layer. `first`: KV of the first decode step in all of them."""
    layers, h1, h2 = shape(r.model)
    wg, wc, cg, cc, hg, hc = (x / 100 for x in r.percent)
    wn, cn, hn, n, s = 1 - wg - wc, 1 - cg - cc, 1 - hg - hc, r.slots * r.batches, r.prompt
    stored, read = (r.kept - 1, r.kept) if r.ratio else (s + 1, s + 1 if first else s + r.gen / 2)
    weights, kv, hidden = 8 * h1 ** 2 + 4 * h1 * h2, 4 * h1 * n, 2 * h1 * n
    mul = weights * n                               # flops of a token's products: as many as bytes of weights
    pre = {"to GPU": (weights * (wc + wn) + s * hidden * (hc + hn)) / c.to_gpu,
           "disk read": (weights * wn + s * hidden * hn) / c.disk_read,
           "from GPU": stored * kv * (cc + cn) / c.kv_from_gpu + s * hidden * (hc + hn) / c.hidden_from_gpu,
           "disk write": stored * kv * cn / c.kv_write_p + s * hidden * hn / c.hidden_write_p,
           "GPU": max(mul * s / c.matmul_p, weights / c.gpu_mem) + kv * s * s / c.attention_p}
    gen = {"to GPU": (weights * (wc + wn) + hidden * (hc + hn)) / c.to_gpu,
           "from GPU": hidden * (hc + hn) / c.hidden_from_gpu,
           "disk read": (kv * read * cn + hidden * hn) / c.disk_read + weights * wn / (0.95 * c.disk_read),
           "disk write": (kv * cn + hidden * hn) / c.write_g,
           "GPU": max(mul / c.matmul_g, weights / c.gpu_mem) + kv * read * cg / c.attention_g,
           "CPU attention": kv * read * (cc + cn) / cpu_rate(c, r.slots, h1)}
    t_pre = max(pre["to GPU"] + pre["disk read"], pre["from GPU"] + pre["disk write"], pre["GPU"])
    t_gen = gen["to GPU"] + max(gen["from GPU"], gen["disk read"], gen["disk write"], gen["GPU"] + gen["CPU attention"])
    return t_pre * layers, t_gen * layers * (r.gen - 1), pre, gen


def disk_as_measured():
    """What their table 8 comes to: KV bytes of all steps over the seconds that reading them took."""
    r = next(r for r in ROWS if r.disk and r.prompt == 512)
    layers, h1, _ = shape(r.model)
    return 4 * h1 * r.slots * r.batches * (r.prompt + r.gen / 2) * layers * (r.gen - 1) / CACHE_READ_S


NOTES = {
    "mem": "their model has no memory bandwidth: with everything on the GPU and one to four sequences a step reads all weights once, which at "
           f"{T4_MEM / 1e9:.0f} GB/s (measured by Jia et al. 2019, arXiv:1903.07486) takes some 60 ms; fitted flop rates alone say 10 to 20 ms",
    "first": "the published figure is a projection from the first decode step, whose KV is the shortest of all (debug mode fewer_batch); computed with its length",
    "disk": "the fitted disk reads 0.51 GB/s, which contradicts their own breakdown (table 8): 19.8 TB of KV in 7046 s are {disk:.2f} GB/s, more than the disk's 2 GB/s, for part of "
            "it came from the page cache (their table 24: without it 0.49 tokens/s, not 0.69; both tables are quoted at second hand). Computed with that rate, and 1 GB/s for writes: so these two rows say that their equations fit their run, not that anybody could have known it before",
    "h2o": "what is missing is not in the model: in each layer and step H2O's fork adds up scores, finds the smallest and scatters rows of K and V, in small GPU kernels. Published steps take 77 ms, "
           "computed ones 61 to 67: a third of a millisecond a layer",
    "cold": "the same policy that FlexGen's paper has at 25.26: in H2O's fork the warm-up run is commented out, so 64 tokens pay for the first calls of everything",
}

SIM_NOTES = {
    "hides": "FlexGen's equation adds the weights' way to the GPU to the rest of a step, as if nothing hid it, and so it meets what was published; in its loop, and in this one, the next layer's weights come while the first "
             "micro-batch computes, so a layer takes the longer of the two and the other micro-batches. Penstock's layer is attention and MLP together, FlexGen's waits after each of the two, so that less can hide. It weighs most "
             "where a block has few micro-batches (40 x 2, 48 x 1), or takes little beside its weights (306 entries; there H2O's small kernels, note 4, are missing, too)",
    "sweeps": "all prompts of a block do not fit on 15 GiB beside two whole layers of weights (FlexGen holds halves of layers): they come in several sweeps, and each reads the weights from the disk again",
}


def notes(r):
    return [k for k, v in (("mem", r.percent == GPU), ("first", r.projected and not r.ratio), ("disk", r.disk), ("h2o", r.percent == GPU and r.ratio),
                           ("cold", r.paper == H2O and r.percent == GPU and r.gen == 32 and not r.ratio)) if v]


def slowest(parts):
    return max(parts, key=parts.get)


def mend(r):
    disk = dict(disk_read=disk_as_measured(), kv_write_p=DISK_WRITE, hidden_write_p=DISK_WRITE, write_g=DISK_WRITE) if r.disk else {}
    return Fitted(gpu_mem=T4_MEM, **disk)


def part_a():
    out = []
    for r in ROWS:
        fitted, mended = flexgen(r), flexgen(r, mend(r), r.projected)
        tokens = r.slots * r.batches * r.gen
        rate = [tokens / (x[0] + x[1]) for x in (fitted, mended)]
        out.append(dict(paper=r.paper, model=r.model, prompt=r.prompt, gen=r.gen, kept=r.kept, gpu_batch_size=r.slots, num_gpu_batches=r.batches, percent=r.percent, published=r.published,
                        fitted=rate[0], mended=rate[1], fitted_error=rate[0] / r.published - 1, mended_error=rate[1] / r.published - 1, prefill_s=mended[0], decode_s=mended[1],
                        prefill_is=slowest(mended[2]), decode_is=slowest(mended[3]), notes=notes(r)))
    return out


def text_a(rows):
    out = ["## (a) FlexGen's schedule, by FlexGen's cost model", "",
           "Computed, not run: the equations and fitted constants of their experimental/cost_model.py, with the policies of their benchmark suites (weights, KV, hidden states: % on the GPU / % on the host; "
           "the rest on disk). `fitted` has their constants and nothing else; `mended` repairs what the notes name. FlexGen's 4-bit rows are left out: nothing here has 4-bit weights. "
           "Seconds, and what takes most of them, are of `mended`.", "",
           "| paper | model | prompt + new | KV entries | batch | weights, KV, hidden | published, tokens/s | fitted | | mended | | prefill, s | decode, s | notes |",
           "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for x in rows:
        p = x["percent"]
        out.append(f"| {x['paper']} | {x['model']} | {x['prompt']} + {x['gen']} | {x['kept'] or 'all'} | {x['gpu_batch_size']} x {x['num_gpu_batches']} | {p[0]}/{p[1]}, {p[2]}/{p[3]}, {p[4]}/{p[5]} | "
                   f"{x['published']:g} | {x['fitted']:.3g} | {x['fitted_error']:+.0%} | {x['mended']:.3g} | {x['mended_error']:+.0%} | {x['prefill_s']:.3g} ({x['prefill_is']}) | "
                   f"{x['decode_s']:.3g} ({x['decode_is']}) | {', '.join(str(NUMBER[k]) for k in x['notes'])} |")
    out.append("")
    for k, text in NOTES.items():
        out.append(f"{NUMBER[k]}. {text.format(disk=disk_as_measured() / 1e9)}.")
    for name in ("fitted", "mended"):
        out += ["", f"Within 20 % of published, `{name}`: {within(rows, lambda x: x[name + '_error'])}."]
    return out


# ---------------------------------------------------------------- (a) in Penstock's simulator

SUITES = ("flexgen-6.7b", "flexgen-30b", "flexgen-175b", "h2o-6.7b", "h2o-30b")
FEW, MANY = 64, 256         # rows of a product: at most those of a generation step (52); at least those of a prompt (512)


def suite_row(r):
    """-> the row of configs/bench that has this one's batch shape and the shares that FlexGen realises, its suite's options in it."""
    for name in SUITES:
        suite = json.load(open(os.path.join(TOP, "configs/bench", name + ".json")))
        for x in suite["rows"] if suite["source"].split(",")[0] == r.paper.split(",")[0] else []:
            o = {**suite["options"], **x["options"]}
            if (suite["model"], x["prompt_len"], x["gen_len"], 2 * o.get("kv-heavy", 0)) == (f"../models/{r.model}.json", r.prompt, r.gen, r.kept):
                return {**x, "options": o}
    sys.exit(f"papers.py: no suite in configs/bench has {r}")


def rate(value, unit="B/s"):
    return {"value": value, "unit": unit, "source": "FlexGen, experimental/cost_model.py"}


def curve(points, unit):
    return {"x": [x for x, _ in points], "y": [y for _, y in points], "unit": unit, "source": "FlexGen, experimental/cost_model.py"}


def machine(hw, r, c):
    """-> the profile `hw` with FlexGen's constants for this row. What it has one rate for and they have two takes as long in all as theirs."""
    _, h1, _ = shape(r.model)
    kv, hidden = 4 * h1 * ((r.kept or r.prompt) + 1), 2 * h1 * r.prompt
    few = [(1, c.gpu_mem), (c.matmul_g / c.gpu_mem, c.matmul_g)] if c.gpu_mem < c.matmul_g else []      # of f16 weights, a flop a byte and row
    gpu = {**hw["gpu"], "mem": rate(15, "GiB"), "linear": [{"weights": "f16", "k": h1, "over_m": curve([*few, (FEW, c.matmul_g), (MANY, c.matmul_p)], "FLOP/s")}],
           "prompt": [{"kv": "f16", "d": 128, "over_tokens": curve([(r.prompt, c.attention_p / 2)], "FLOP/s")}],      # they count all pairs, our op those that are seen: half
           "decode": [{"kv": "f16", "d": 128, "over_entries": curve([(r.prompt, c.attention_g)], "B/s")}]}              # as many flops as bytes
    host = {**hw["host"], "decode": [{"kv": "f16", "d": 128, "over_entries": curve([(r.prompt, cpu_rate(c, r.slots, h1))], "B/s")}]}
    links = {"h2d": rate(c.to_gpu), "d2h": rate((kv + hidden) / (kv / c.kv_from_gpu + hidden / c.hidden_from_gpu))}
    return {**hw, "host": host, "gpu": gpu, "links": links, "disk": {**hw["disk"], "read": rate(c.disk_read), "write": rate(c.kv_write_p)}}


def simulate(a, tmp, r, c, first):
    """-> tokens/s, prefill seconds, decode seconds, the link that limits, and whether all prompts ran before the first decode step, as FlexGen has it. Where they do not
    fit on the GPU at once, the plan's own number of them in a sweep; `first`: the first decode step stands for all, where it has all sequences."""
    row = {k: v for k, v in suite_row(r).items() if k != "published"}
    files = {n: os.path.join(tmp, n + ".json") for n in ("suite", "machine", "out")}
    json.dump(machine(json.load(open(a.hardware)), r, c), open(files["machine"], "w"))
    for at_once in (True, False):
        options = {**row["options"], **({"prefill-tokens": r.slots * r.batches * r.prompt} if at_once else {})}
        steps = 1 if first and at_once else r.gen - 1
        x = {**row, "options": options, "schedule": ["barrier", "no-continuous"], "gen_len": steps + 1}
        json.dump({"model": os.path.join(TOP, f"configs/models/{r.model}.json"), "rows": [x]}, open(files["suite"], "w"))
        cmd = [a.penstock, "bench", "--suite", files["suite"], "--hardware", files["machine"], "-o", files["out"]]
        p = subprocess.run(cmd, capture_output=True, text=True)
        if p.returncode != 4:           # it fits
            break
    if p.returncode:
        sys.exit(f"papers.py: {shlex.join(cmd)}: {p.stderr}")
    run, = json.load(open(files["out"]))["rows"][0]["runs"]
    pre, gen = run["prefill_s"], run["decode_s"] / steps * (r.gen - 1)
    return dict(tokens_per_s=r.slots * r.batches * r.gen / (pre + gen), prefill_s=pre, decode_s=gen, limit=run["limited_by"], at_once=at_once)


def simulate_a(a, rows):
    """Adds to each row of part (a) what the simulator makes of it."""
    with tempfile.TemporaryDirectory() as tmp:
        for r, x in zip(ROWS, rows):
            for name, c, first in (("fitted", Fitted(), False), ("mended", mend(r), r.projected)):
                got = simulate(a, tmp, r, c, first)
                x["simulated_" + name] = dict(got, error=got["tokens_per_s"] / r.published - 1)
            x["simulated_notes"] = x["notes"] + ["hides"] * (r.percent[1] > 0 and not r.disk) + ["sweeps"] * r.disk
            print(f"# {r.paper}, {r.model}, {r.prompt} + {r.gen}, {r.kept or 'all'} entries, FlexGen's schedule: {got['tokens_per_s']:.3g} tokens/s", file=sys.stderr, flush=True)


NUMBER = {k: i + 1 for i, k in enumerate([*NOTES, *SIM_NOTES])}


def within(rows, name):
    """`name`: of a row -> its error."""
    return f"{sum(abs(name(x)) <= 0.2 for x in rows)} of {len(rows)}"


def text_simulated(rows):
    out = ["", "### FlexGen's schedule, run by Penstock's scheduler in simulation", "",
           "**Simulated, not run**: the same rows through `penstock bench --hardware` with `--barrier --no-continuous`, batch shapes and realised shares of configs/bench (FlexGen places whole tensors: its 20 % of the weights are 8.3 %). "
           "So it is Penstock's scheduler on a virtual clock that does what FlexGen's loop does: all prompts of a block (in several sweeps where they do not fit on the GPU at once: `at_once` in papers.json), then all steps of it; after each layer and micro-batch everything is waited for, while the next weights, KV and hidden "
           "states come and the last go. The machine is the T4's profile with FlexGen's constants in place of its rates: 15 GiB of GPU memory, copies to the GPU, products of prompts and of steps, attention on GPU and host, disk. "
           "Three things that FlexGen has two rates for and the profile one are taken together: copies from the GPU (KV and hidden states, so that a prompt's take as long in all), writes to the disk (the prompts'), reads of weights and of KV from the disk "
           "(without the 5 % off for weights). `fitted` has its constants and nothing else, `mended` what notes 1 to 3 name: reading weights from the GPU's memory, the first step's KV in all steps, the disk as they measured it.", "",
           "| paper | model | prompt + new | KV entries | batch | published, tokens/s | fitted | | mended | | prefill, s | decode, s | busiest | notes |",
           "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for x in rows:
        f, m = x["simulated_fitted"], x["simulated_mended"]
        out.append(f"| {x['paper']} | {x['model']} | {x['prompt']} + {x['gen']} | {x['kept'] or 'all'} | {x['gpu_batch_size']} x {x['num_gpu_batches']} | {x['published']:g} | "
                   f"{f['tokens_per_s']:.3g} | {f['error']:+.0%} | {m['tokens_per_s']:.3g} | {m['error']:+.0%} | {m['prefill_s']:.3g} | {m['decode_s']:.3g} | {m['limit']} | "
                   f"{', '.join(str(NUMBER[k]) for k in x['simulated_notes'])} |")
    out += [""] + [f"{NUMBER[k]}. {text}." for k, text in SIM_NOTES.items()]
    return out + ["", f"Within 20 % of published, `fitted`, simulated: {within(rows, lambda x: x['simulated_fitted']['error'])}.", "",
                  f"Within 20 % of published, `mended`, simulated: {within(rows, lambda x: x['simulated_mended']['error'])}."]


# ---------------------------------------------------------------- (b) Penstock's planner

HOST_MEM = "190G"       # of the 208 GB: FlexGen's own model has 204 for itself
UNITS = {"GB/s": 1e9, "GiB/s": GIB, "TB/s": T, "GFLOP/s": 1e9, "TFLOP/s": T}


def figure(hardware, path):
    v = hardware
    for key in path.split("."):
        v = v[key]
    return v["value"] * UNITS[v["unit"]]


def floor(hw, plan, model, prompt, gen):
    """-> tokens/s that no schedule of this plan can pass, and what sets it: bytes of each link over its rate, flops over the GPU's."""
    layers, h1, h2 = shape(model)
    vocab = json.load(open(os.path.join(TOP, "configs/models", model + ".json")))["vocab_size"]
    flops = layers * ((8 * h1 ** 2 + 4 * h1 * h2) * (prompt + gen) + 2 * h1 * prompt ** 2) + 2 * vocab * h1 * gen
    s = {"GPU's arithmetic": flops / gen / figure(hw, "gpu.flops"), "GPU's memory": plan["hbm_bytes_per_token"] / figure(hw, "gpu.read"),
         "host's memory": plan["dram_bytes_per_token"] / figure(hw, "host.read"), "copies to the GPU": plan["h2d_bytes_per_token"] / figure(hw, "links.h2d"),
         "copies from it": plan["d2h_bytes_per_token"] / figure(hw, "links.d2h"), "disk reads": plan["disk_read_bytes_per_token"] / figure(hw, "disk.read"),
         "disk writes": plan["disk_write_bytes_per_token"] / figure(hw, "disk.write")}
    most = max(s, key=s.get)
    return 1 / s[most], most


def part_b(a):
    hw = json.load(open(a.hardware))
    best, out = {}, []
    for r in ROWS:                      # the best published figure of each job
        key = r.model, r.prompt, r.gen, r.kept
        if key not in best or r.published > best[key].published:
            best[key] = r
    for r in best.values():
        kv = ["--kv-policy", "h2o", "--kv-heavy", str(r.kept // 2), "--kv-recent", str(r.kept // 2)] if r.ratio else ["--kv-policy", "full"]
        cmd = [a.penstock, "plan", os.path.join(TOP, "configs/models", r.model + ".json"), "--hardware", a.hardware, "--prompt-len", str(r.prompt), "--gen-len", str(r.gen),
               "--requests", str(a.requests), "--host-mem", HOST_MEM, *kv, "--top", "1", "--json"]
        p = subprocess.run(cmd, capture_output=True, text=True)
        if p.returncode:
            sys.exit(f"papers.py: {shlex.join(cmd)}: {p.stderr}")
        got = json.loads(p.stdout)
        plan = got["plans"][0]
        limit, why = floor(hw, plan, r.model, r.prompt, r.gen)
        out.append(dict(paper=r.paper, model=r.model, prompt=r.prompt, gen=r.gen, kept=r.kept, published=r.published, floor=limit, floor_is=why, outside=got["outside"], plan=plan))
        print(f"# {r.model}, {r.prompt} + {r.gen}, {r.kept or 'all'} entries: {plan['tokens_per_s']:.3g} tokens/s", file=sys.stderr, flush=True)
    return out


def placed(plan, what):
    return "/".join(f"{plan[f'{what}_{t}'] or 0:.0f}" for t in ("gpu", "host", "disk"))


def text_b(a, rows):
    hw = json.load(open(a.hardware))
    out = ["", "## (b) Penstock's planner on that machine, as published figures describe it", "",
           f"**Simulated, not run**: `penstock plan --host-mem {HOST_MEM}` for {a.requests} requests of each kind on `{os.path.relpath(a.hardware, TOP)}` ({hw['name']}), whose rates are published or derived and were not measured by us; "
           "Penstock's GPU code has not been run on a T4. The profile has no curves, so a linear takes the larger of its flops at 21 TFLOP/s and its bytes at the GPU memory's rate, and attention on the host reads KV at all of "
           "the memory's rate, of which its kernels were measured to reach 86 % elsewhere (attn_decode-2-threads.md): where the host's kernels are busiest, that much less is likely. "
           "The KV policy keeps as many entries as H2O's rows do. `floor`: no schedule of that plan can be faster, from its bytes and flops and the profile's rates. "
           "Weights, KV: % on GPU/host/disk. FlexGen's figures are of one block of sequences, these of a job that fills its slots again.", "",
           "| model | prompt + new | KV entries | best published, tokens/s | predicted | ratio | floor | predicted / floor | batch | weights | KV | attention on the host | busiest |",
           "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for x in rows:
        p = x["plan"]
        out.append(f"| {x['model']} | {x['prompt']} + {x['gen']} | {x['kept'] or 'all'} | {x['published']:g} ({x['paper'].split(',')[0]}) | {p['tokens_per_s']:.3g} | "
                   f"{p['tokens_per_s'] / x['published']:.1f} x | {x['floor']:.3g} ({x['floor_is']}) | {p['tokens_per_s'] / x['floor']:.0%} | {p['gpu_batch_size']:.0f} x {p['num_gpu_batches']:.0f} | "
                   f"{placed(p, 'weights')} | {placed(p, 'kv')} | {p['attention_host'] or 0:.0f} % | {p['limit']} ({p['limit_busy']:.0f} %) |")
    out += ["", "OPT-175B waits for the disk: no batch that fits gets past 2 GB/s. FlexGen's own figures had the page cache to help (note 3); without it they publish 0.49 at 512 + 32.", "",
            "With H2O so many sequences fit that something else than memory for KV limits: prompts at 512 + 32 (the GPU's arithmetic, so that H2O brings next to nothing there), for long answers the weights' way to the GPU "
            "(30B) and reading what was kept of KV (6.7B)."]
    outside = {x["outside"] for x in rows if x["outside"]}
    return out + (["", f"Priced beyond what the profile tells: {'; '.join(sorted(outside))}."] if outside else [])


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", default=os.path.join(TOP, "bench/results/papers"), help="OUT.md and OUT.json (bench/results/papers)")
    ap.add_argument("--penstock", help="the program, for what is simulated")
    ap.add_argument("--hardware", default=os.path.join(TOP, "configs/hardware/t4-gcp.json"), help="the profile for what is simulated")
    ap.add_argument("--requests", type=int, default=2048, help="of each job of part (b) (2048)")
    a = ap.parse_args()
    result = {"command": shlex.join(["bench/papers.py", *sys.argv[1:]]), "flexgen": part_a(), "penstock": []}
    if a.penstock:
        simulate_a(a, result["flexgen"])
        result["penstock"] = part_b(a)
    lines = ["# The papers' tables: published beside predicted", "",
             f"`{result['command']}`, commit {COMMIT}. **Nothing in this file was measured by us.** `published` is quoted from the papers (FlexGen: arXiv:2303.06865; H2O: arXiv:2306.14048), from runs on a T4 with 16 GB, "
             "208 GB of memory and a disk of 1.5 TB; everything else is computed. tokens/s: new tokens over prefill and decode together.", ""]
    lines += text_a(result["flexgen"])
    if a.penstock:
        lines += text_simulated(result["flexgen"]) + text_b(a, result["penstock"])
    open(a.out + ".md", "w").write("\n".join(lines) + "\n")
    json.dump(result, open(a.out + ".json", "w"), indent=1)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
