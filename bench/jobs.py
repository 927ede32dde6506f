#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole jobs, beside Hugging Face transformers and accelerate in the same run and under the same memory limit.

    jobs.py PENSTOCK [--rows offload,resident,h2o-disk,h2o-host] [--shape opt-1.3b] [--limit 1638M] [--prompts N] [--repeats N] [--work DIR]

rows
  offload    256 prompts of 32 + 128 tokens, weights on disk, one cgroup memory limit for both: penstock `full` and H2O 20 %
             against accelerate's disk offload at its best data type and batch size
  resident   32 prompts of 128 + 32 tokens, everything in memory: penstock against transformers in float32, bfloat16 beside it
  h2o-disk   penstock alone: H2O 20 % against `full`, the same --host-mem, 512 + 512 tokens, weights on disk; each with as many prompts
             as fill its slots a whole number of times (--h2o-prompts)
  h2o-host   the same with the weights in memory (beside --h2o-mem)

Weights are random (`penstock convert --dummy`); Hugging Face reads the very same file. Needs torch, transformers and accelerate for
the first two rows (python3 -m venv .venv && .venv/bin/pip install torch transformers accelerate, then run this with .venv/bin/python).
A job of the peer that would take longer than --budget-s is measured over one batch's first and last tokens and projected from their rates; the
table says so. Writes bench/results/jobs-ROW.md and .json.
"""
import argparse, json, os, platform, re, shutil, statistics, subprocess, sys, time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TOP, "bench"))
from kernels import COMMIT

RESULTS = os.path.join(TOP, "bench", "results")
GIB = 1 << 30
LAST = 3                                # steps that a projection takes from the end of a batch
LOAD = os.getloadavg()[0]


def size(text):
    m = re.fullmatch(r"([\d.]+)([KMGT]?)", text)
    if not m:
        raise argparse.ArgumentTypeError(f"{text}: a size looks like 512M or 1.6G")
    return int(float(m[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}[m[2]])


# ---------------------------------------------------------------- one memory limit for whatever runs in it

class Limit:
    """A cgroup (version 2, or 1) with a memory limit that counts the page cache; without one, no limit, and the table says so."""

    def __init__(self, limit):
        self.limit, self.dir, self.kind = limit, None, "none (no writable cgroup)"
        if not limit:
            self.kind = "none"
            return
        for root, mark, file, kind in (("/sys/fs/cgroup", "cgroup.controllers", "memory.max", "cgroup v2"),
                                       ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.limit_in_bytes", "cgroup v1")):
            if not os.path.exists(f"{root}/{mark}"):
                continue                            # a plain folder would take the file and limit nothing
            d = f"{root}/penstock-bench-{os.getpid()}"
            try:
                os.mkdir(d)
                with open(f"{d}/{file}", "r+") as f:
                    f.write(str(limit))
                self.dir, self.kind = d, kind
                return
            except OSError:
                if os.path.isdir(d):
                    os.rmdir(d)

    def enter(self):
        if self.dir:
            with open(f"{self.dir}/cgroup.procs", "r+") as f:
                f.write(str(os.getpid()))

    def close(self):
        for _ in range(50):
            try:
                if self.dir:
                    os.rmdir(self.dir)
                return
            except OSError:
                time.sleep(0.1)


def cold(folder):
    """Drops a folder's files from the page cache: what is cached outside the limit would be free inside it."""
    for base, _, files in os.walk(folder):
        for f in files:
            fd = os.open(os.path.join(base, f), os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def run(cmd, limit, timeout, env=None):
    begin = time.monotonic()
    p = subprocess.Popen(cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=limit.enter, env={**os.environ, **(env or {})})
    try:
        out, err = p.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        p.kill()
        p.communicate()
        return None, f"no end after {timeout:.0f} s", time.monotonic() - begin
    return (out if p.returncode == 0 else None), err[-1500:] or f"exit {p.returncode}", time.monotonic() - begin


# ---------------------------------------------------------------- penstock

def job_file(path, n, prompt, new, vocab):
    with open(path, "w") as f:
        for i in range(n):
            ids = [2] + [(1000 + 7919 * i + 104729 * j) % (vocab - 10) + 5 for j in range(prompt - 1)]
            f.write(json.dumps({"prompt": ids, "max_tokens": new, "ignore_eos": True, "return_token_ids": False}) + "\n")


def penstock(a, limit, n, prompt, new, *options):
    """-> the report of one job"""
    w = a.work
    job_file(f"{w}/job.jsonl", n, prompt, new, a.vocab)
    for f in ("out.jsonl", "out.jsonl.part", "out.jsonl.journal"):
        if os.path.exists(f"{w}/{f}"):
            os.remove(f"{w}/{f}")
    cold(a.packed)
    out, err, wall = run([a.penstock, "generate", a.packed, f"{w}/job.jsonl", "-o", f"{w}/out.jsonl", "--report", f"{w}/report.json", "--progress", "none",
                          "--no-resume", *map(str, options)], limit, a.budget_s * 4)
    if out is None:
        return {"error": err}
    r = json.load(open(f"{w}/report.json"))
    t = r["time"]
    return {"wall_s": wall, "prefill_s": t["prefill"], "decode_s": t["decode"], "total_s": t["prefill"] + t["decode"], "load_s": t["load"],
            "tokens_per_s": r["throughput"]["total"], "decode_per_s": r["throughput"]["decode"], "plan": r["plan"], "wait_s": r["wait_s"],
            "disk_share": (r["links"].get("disk_read") or {}).get("share_of_probed"), "projected": False}


# ---------------------------------------------------------------- the peer: this same file, in its own process

def hf_folder(a):
    """The packed model as Hugging Face wants it: links, no copy."""
    d = f"{a.work}/hf"
    if not os.path.exists(f"{d}/model.safetensors"):
        os.makedirs(d, exist_ok=True)
        files = [f for f in os.listdir(a.packed) if f.endswith(".safetensors")]
        if len(files) != 1:
            raise SystemExit(f"{a.packed}: {len(files)} weight files, expected one")
        os.symlink(f"{a.packed}/{files[0]}", f"{d}/model.safetensors")
        shutil.copy(f"{a.packed}/config.json", f"{d}/config.json")
    return d


def peer_make(folder, dst, dtype):
    """Outside the limit: accelerate's offload folder."""
    import torch, transformers
    from accelerate.utils import offload_state_dict
    m = transformers.OPTForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    offload_state_dict(dst, m.state_dict())
    print("{}")


def last_steps(m, batch, held):
    """Seconds of a batch's last steps, before which its cache holds so many tokens. The cache is made, not computed: no long prompt asks for memory."""
    import torch, transformers
    c, cache, steps = m.config, transformers.DynamicCache(), []
    for layer in range(c.num_hidden_layers):
        cache.update(*(torch.zeros(batch, c.num_attention_heads, held, c.hidden_size // c.num_attention_heads, dtype=m.dtype) for _ in range(2)), layer)
    for i in range(LAST):
        ids = torch.randint(5, c.vocab_size, (batch, 1))
        begin = time.monotonic()
        with torch.inference_mode():
            m(input_ids=ids, past_key_values=cache, attention_mask=torch.ones(batch, held + i + 1, dtype=torch.long), use_cache=True)
        steps.append(time.monotonic() - begin)
    return steps


def peer_run(folder, offload, dtype, batch, n, prompt, new, steps):
    """One process of the peer; prints {"load_s", "prefill_s", "step_s", "batches", ...}: seconds a batch's prompt and a step take. If these are not all
    steps: a mean of the first and the last ones."""
    import torch, transformers
    from accelerate import disk_offload, init_empty_weights
    torch.manual_seed(0)
    begin = time.monotonic()
    dt = getattr(torch, dtype)
    if offload:
        cfg = transformers.AutoConfig.from_pretrained(folder)
        with init_empty_weights():
            m = transformers.OPTForCausalLM(cfg).to(dt)
        m.tie_weights()
        m.eval()
        disk_offload(m, offload, execution_device="cpu")
    else:
        m = transformers.OPTForCausalLM.from_pretrained(folder, dtype=dt).eval()
    load = time.monotonic() - begin
    marks = []

    class Clock(transformers.LogitsProcessor):
        def __call__(self, ids, scores):
            marks.append(time.monotonic())
            return scores

    prefill, step, whole = [], [], []
    batches = -(-n // batch)
    for _ in range(min(batches, 1 if steps < new else batches)):
        ids = torch.randint(5, m.config.vocab_size, (batch, prompt))
        marks.clear()
        t0 = time.monotonic()
        with torch.inference_mode():
            m.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=steps, min_new_tokens=steps, do_sample=False, pad_token_id=1,
                       logits_processor=transformers.LogitsProcessorList([Clock()]))
        whole.append(time.monotonic() - t0)
        prefill.append(marks[0] - t0)
        step += [b - x for x, b in zip(marks, marks[1:])]
    last = last_steps(m, batch, prompt + new - 1 - LAST) if steps < new else step
    print(json.dumps({"load_s": load, "prefill_s": statistics.median(prefill), "step_s": (statistics.median(step) + statistics.median(last)) / 2,
                      "first_steps": step[:steps], "last_steps": last[-LAST:], "batches": batches, "measured_batches": len(prefill), "steps": steps}))


def peer(a, limit, mode, dtype, batch, n, prompt, new, steps):
    d = hf_folder(a)
    off = f"{a.work}/offload-{dtype}" if mode == "offload" else ""
    me = [sys.executable, os.path.abspath(__file__)]
    quiet = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if off and not os.path.exists(f"{off}/index.json"):
        free = shutil.disk_usage(a.work).free
        need = os.path.getsize(f"{d}/model.safetensors") * (2 if dtype == "float32" else 1)
        if free < need + 2 * GIB:
            return {"error": f"{free / GIB:.1f} GiB free, {need / GIB:.1f} needed for the offload folder", "dtype": dtype, "batch": batch}
        out, err, _ = run(me + ["--peer-make", d, off, dtype], Limit(0), 900, quiet)
        if out is None:
            return {"error": err, "dtype": dtype, "batch": batch}
    cold(a.work)
    cold(a.packed)
    out, err, wall = run(me + ["--peer-run", d, off, dtype, str(batch), str(n), str(prompt), str(new), str(steps)], limit, a.budget_s, quiet)
    if out is None:
        return {"error": err.strip().splitlines()[-1][:200] if err.strip() else "killed (out of memory)", "dtype": dtype, "batch": batch}
    r = json.loads(out.strip().splitlines()[-1])
    r["prefill_total_s"], r["decode_total_s"] = r["batches"] * r["prefill_s"], r["batches"] * (new - 1) * r["step_s"]
    total = r["prefill_total_s"] + r["decode_total_s"]
    return {**r, "wall_s": wall, "total_s": total, "tokens_per_s": n * new / total, "decode_per_s": n * (new - 1) / r["decode_total_s"], "dtype": dtype, "batch": batch,
            "projected": r["measured_batches"] < r["batches"] or steps < new}


# ---------------------------------------------------------------- rows

def good(runs):
    return [r for r in runs if "error" not in r]


def median(runs, key):
    return statistics.median(r[key] for r in good(runs))


def over(runs, base, key):
    """The median of each round's ratio, and its spread."""
    v = [r[key] / b[key] for r, b in zip(runs, base) if "error" not in r and "error" not in b]
    return (f"{statistics.median(v):.2f} x" + (f" ({min(v):.2f} - {max(v):.2f})" if len(v) > 1 else "")) if v else ""


def line(name, runs, base=None):
    """Medians of the rounds, and min - max of the rate."""
    ok = good(runs)
    if not ok:
        return f"| {name} | failed: {runs[0]['error'][-120:]} | | | | |"
    rate = [r["tokens_per_s"] for r in ok]
    spread = f" ({min(rate):.2f} - {max(rate):.2f})" if len(rate) > 1 else ""
    how = f"projected from the first {ok[0]['steps']} and the last {LAST} steps of a batch" if ok[0].get("projected") else "measured"
    lost = f", {len(runs) - len(ok)} of {len(runs)} failed" if len(ok) < len(runs) else ""
    return (f"| {name} | {median(runs, 'tokens_per_s'):.2f}{spread} | {median(runs, 'decode_per_s'):.2f} | {median(runs, 'total_s'):.1f} | "
            f"{over(runs, base, 'tokens_per_s') if base else ''} | {how}{lost} |")


HEAD = "| run | tokens/s | decode tokens/s | prefill + decode, s | against | how |\n| --- | --- | --- | --- | --- | --- |"


def write(row, title, notes, lines, data):
    os.makedirs(RESULTS, exist_ok=True)
    model = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), "?")
    text = f"# {title}\n\n{platform.machine()}, {model}, {os.cpu_count()} cores, load {LOAD:.1f} before the run; commit {COMMIT}. {notes}\n\n{HEAD}\n" + "\n".join(lines) + "\n"
    with open(f"{RESULTS}/jobs-{row}.md", "w") as f:
        f.write(text)
    with open(f"{RESULTS}/jobs-{row}.json", "w") as f:
        json.dump(data, f, indent=1)
    print(text)


def before(a, row):
    """With --add: what the row's earlier rounds gave."""
    path = f"{RESULTS}/jobs-{row}.json"
    if not a.add or not os.path.exists(path):
        return {}
    with open(path) as f:
        return json.load(f)


def how(data):
    n = max(len(v) for v in data.values())
    return f"Medians and (min - max) of {n} rounds, run in turn." if n > 1 else "One run each."


def rounds(a, row, runs):
    """{name: function} in turn, --repeats times, so that a slow minute hits all alike -> {name: [result]}, after the rounds of before()"""
    old = before(a, row)
    data = {k: old.get(k, []) for k in runs}
    for i in range(a.repeats):
        for k, fn in runs.items():
            data[k].append(fn())
            r = data[k][-1]
            print(f"# round {i + 1}, {k}: {r.get('error') or '%.2f tokens/s' % r['tokens_per_s']}", file=sys.stderr, flush=True)
    return data


def row_offload(a):
    n, prompt, new = a.prompts or 256, 32, 128
    lim = Limit(a.limit)
    try:
        tried, old = [], before(a, "offload")
        done = {(r["dtype"], r["batch"]): r for r in old.get("tried", [])}
        for dtype in a.peer_dtypes:             # once: the peer's best data type and batch size
            for batch in a.peer_batches:
                r = done.get((dtype, batch)) or peer(a, lim, "offload", dtype, batch, n, prompt, new, a.peer_steps)
                tried.append(r)
                print(f"# accelerate {dtype} batch {batch}: {r.get('error') or '%.2f tokens/s' % r['tokens_per_s']}", file=sys.stderr, flush=True)
                if "error" in r:
                    break                       # a larger batch needs more memory still
        best = max(good(tried), key=lambda r: r["tokens_per_s"], default=tried[0])
        ours = lambda *kv: penstock(a, lim, n, prompt, new, "--weights", "disk:100", *kv, *a.opts)
        if not good(tried):
            raise SystemExit("no run of accelerate fits: " + tried[0]["error"])
        if any((r["dtype"], r["batch"]) != (best["dtype"], best["batch"]) for r in old.get("accelerate", [])):
            raise SystemExit("the rounds so far are of another data type or batch size of accelerate: run without --add")
        data = rounds(a, "offload", {"accelerate": lambda: peer(a, lim, "offload", best["dtype"], best["batch"], n, prompt, new, a.peer_steps),
                          "full": lambda: ours("--kv-policy", "full"), "h2o": lambda: ours("--kv-policy", "h2o", "--kv-budget", "20%")})
    finally:
        lim.close()
    offload_table(a, lim.kind, data, tried, best)


def offload_table(a, limit, data, tried, best):
    base = [best if "error" in r else r for r in data["accelerate"]]        # killed now and then: its good run counts
    killed = sum("error" in r for r in data["accelerate"])
    lines = [line("penstock, full", data["full"], base), line("penstock, H2O 20 %", data["h2o"], base),
             line(f"accelerate disk_offload, {best['dtype']}, batch {best['batch']} (its best)", base)]
    lines += [line(f"accelerate disk_offload, {r['dtype']}, batch {r['batch']}, tried once", [r]) for r in tried if r is not best and "dtype" in r]
    if killed:
        lines.append(f"\nIn {killed} of {len(base)} rounds accelerate was killed (out of memory) with the batch that had worked; the run that worked stands for these.")
    write("offload", f"{a.shape}, {a.prompts or 256} prompts of 32 + 128 tokens, weights on disk",
          f"Memory limit: {a.limit / GIB:.2f} GiB, {limit}, page cache counted, for every process. {how(data)}", lines, {**data, "tried": tried})


def row_resident(a):
    n, prompt, new = min(a.prompts or 32, 32), 128, 32
    lim = Limit(0)
    runs = rounds(a, "resident", {"penstock": lambda: penstock(a, lim, n, prompt, new, "--weights", "host:100", "--kv-policy", "full", "--kv-dtype", "f32", *a.opts),
                      **{t: lambda t=t: peer(a, lim, "resident", t, n, n, prompt, new, new) for t in ("float32", "bfloat16")}})
    p, f, b = (runs[k] for k in ("penstock", "float32", "bfloat16"))
    lines = [line("penstock (f16 weights, f32 arithmetic)", p, f), line("transformers float32", f), line("transformers bfloat16", b, f),
             f"\nDecode {over(p, f, 'decode_per_s')}, total {over(p, f, 'tokens_per_s')} transformers float32."]
    write("resident", f"{a.shape} in memory, {n} prompts of {prompt} + {new} tokens", how(runs), lines, runs)


def row_h2o(a, where):
    new = prompt = a.h2o_length
    n_full, n_h2o = a.h2o_prompts
    lim = Limit(0)
    mem = a.h2o_mem + (os.path.getsize(f"{hf_folder(a)}/model.safetensors") if where == "host" else 0)
    opts = ["--weights", f"{where}:100", "--kv", "host:100", "--hidden", "host:100", "--host-mem", f"{mem >> 20}M", *a.opts]
    data = rounds(a, f"h2o-{where}", {"full": lambda: penstock(a, lim, n_full, prompt, new, "--kv-policy", "full", *opts),
                      "h2o": lambda: penstock(a, lim, n_h2o, prompt, new, "--kv-policy", "h2o", "--kv-budget", "20%", *opts)})
    full, h2o = data["full"], data["h2o"]
    slots = lambda runs: "".join(f", {r['plan']['gpu_batch_size'] * r['plan']['num_gpu_batches']} slots" for r in good(runs)[:1])
    lines = [line(f"full, {n_full} prompts{slots(full)}", full), line(f"H2O 20 %, {n_h2o} prompts{slots(h2o)}", h2o, full),
             f"\nDecode {over(h2o, full, 'decode_per_s')}, total {over(h2o, full, 'tokens_per_s')} full."]
    write(f"h2o-{where}", f"{a.shape}, H2O 20 % against full, {prompt} + {new} tokens, weights {'on disk' if where == 'disk' else 'in memory'}",
          f"--host-mem {mem >> 20}M for both. {how(data)}", lines, {**data, "host_mem": mem})


def main():
    if sys.argv[1:2] == ["--peer-make"]:
        return peer_make(*sys.argv[2:5])
    if sys.argv[1:2] == ["--peer-run"]:
        x = sys.argv[2:]
        return peer_run(x[0], x[1], x[2], *map(int, x[3:8]))
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("penstock")
    ap.add_argument("--rows", default="offload,resident,h2o-disk,h2o-host")
    ap.add_argument("--shape", default="opt-1.3b", help="a file of configs/models")
    ap.add_argument("--limit", type=size, default=size("1638M"), help="memory limit of the row `offload` (1638M = 1.6 GiB)")
    ap.add_argument("--prompts", type=int, help="fewer prompts")
    ap.add_argument("--work", default=os.path.join(TOP, "build", "bench-jobs"), help="where models and results go while it runs")
    ap.add_argument("--budget-s", type=float, default=600, help="time limit of one process of the peer; four times that for ours")
    ap.add_argument("--peer-dtypes", type=lambda s: s.split(","), default=["bfloat16", "float32"])
    ap.add_argument("--peer-batches", type=lambda s: [int(x) for x in s.split(",")], default=[4, 8, 12, 16, 20, 24, 32, 48])
    ap.add_argument("--peer-steps", type=int, default=6, help="tokens at the start of a batch that the peer's offloaded runs are measured over, beside its last ones")
    ap.add_argument("--h2o-mem", type=size, default=size("2300M"), help="--host-mem of the rows `h2o-*`: one that gives full 8 to 12 slots")
    ap.add_argument("--h2o-length", type=int, default=512)
    ap.add_argument("--h2o-prompts", type=lambda s: [int(x) for x in s.split(",")], default=[10, 48], help="prompts for full and for H2O (10,48)")
    ap.add_argument("--repeats", type=int, default=3, help="rounds of what is compared, in turn (3)")
    ap.add_argument("--add", action="store_true", help="add the rounds to those that bench/results has of this program, and write the table of all")
    ap.add_argument("opts", nargs="*", help="more options for penstock generate (after --)")
    a = ap.parse_args()
    a.penstock, a.work = os.path.abspath(a.penstock), os.path.abspath(a.work)
    os.makedirs(a.work, exist_ok=True)
    cfg = os.path.join(TOP, "configs", "models", a.shape + ".json")
    a.vocab = json.load(open(cfg))["vocab_size"]
    a.packed = f"{a.work}/{a.shape}"
    free = shutil.disk_usage(a.work).free
    if not os.path.exists(a.packed):
        if free < 20 * GIB:
            raise SystemExit(f"{a.work}: {free / GIB:.1f} GiB free; the models of this benchmark want 20 (--work says where)")
        subprocess.run([a.penstock, "convert", "--dummy", cfg, a.packed], check=True)
    for row in a.rows.split(","):
        {"offload": row_offload, "resident": row_resident, "h2o-disk": lambda a: row_h2o(a, "disk"), "h2o-host": lambda a: row_h2o(a, "host")}[row](a)
    return 0


if __name__ == "__main__":
    sys.exit(main())
