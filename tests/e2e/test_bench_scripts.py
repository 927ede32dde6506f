# SPDX-License-Identifier: Apache-2.0
"""bench/papers.py and bench/plot.py: what they compute and write. Neither measures anything."""
import argparse, json, os, shutil, subprocess, sys

from harness import TOP

sys.path.insert(0, os.path.join(TOP, "bench"))
import papers
import plot


def test_commit(t):
    """What a table says it was made of: a commit, with changes or without; of a tree that is not in git, nothing, whatever is around it."""
    git = lambda *cmd: subprocess.run(["git", "-C", t.path("tree"), "-c", "user.name=n", "-c", "user.email=e", *cmd], check=True, capture_output=True, text=True).stdout.strip()
    if not shutil.which("git"):
        t.skip("no git here")
    os.makedirs(t.path("tree/inner/bench/results"))
    os.makedirs(t.path("tree/bench/results"))
    for place in ("tree", "tree/inner"):
        shutil.copy(os.path.join(TOP, "bench", "kernels.py"), t.path(place + "/bench/kernels.py"))
    said = lambda place: subprocess.run([sys.executable, "-B", "-c", "import kernels; print(kernels.COMMIT)"], cwd=t.path(place + "/bench"), check=True, capture_output=True, text=True).stdout.strip()
    t.eq(said("tree"), "unknown", "no repository")
    t.write("tree/bench/results/a.md", "1")
    git("init", "-q")
    git("add", "bench")
    git("commit", "-q", "-m", "m")
    head = git("rev-parse", "--short=12", "HEAD")
    t.eq((said("tree"), said("tree/inner")), (head, "unknown"), "a clean tree, and one inside it that is not in git")
    t.write("tree/bench/results/a.md", "2")
    t.eq(said("tree"), head, "another result")
    with open(t.path("tree/bench/kernels.py"), "a") as f:
        f.write("# changed\n")
    t.eq(said("tree"), head + ", with changes", "another file")


def test_flexgens_model(t):
    """Worked by hand for a model of one layer, and as evaluated by others for the published policies."""
    layer = papers.Row("", "one", 8, 3, 64, 2, (50, 25, 0, 50, 0, 100), 1)
    rates = dict(to_gpu=4, kv_from_gpu=8, hidden_from_gpu=2, disk_read=2, kv_write_p=4, hidden_write_p=1, write_g=2, matmul_p=1024, matmul_g=64, attention_p=512, attention_g=1, cpu=64)
    shape, papers.shape = papers.shape, lambda model: (1, 4096, 1)
    try:
        pre_s, gen_s, pre, gen = papers.flexgen(layer, papers.Fitted(**rates))
    finally:
        papers.shape = shape
    w, kv, hidden = 8 * 4096 ** 2 + 4 * 4096, 4 * 4096 * 128, 2 * 4096 * 128
    t.eq(pre, {"to GPU": (w / 2 + 8 * hidden) / 4, "disk read": w / 4 / 2, "from GPU": 9 * kv / 8 + 8 * hidden / 2, "disk write": 9 * kv / 2 / 4,
               "GPU": w * 128 * 8 / 1024 + kv * 64 / 512}, "prefill")
    t.eq(gen, {"to GPU": (w / 2 + hidden) / 4, "from GPU": hidden / 2, "disk read": kv * 9.5 / 2 / 2 + w / 4 / (0.95 * 2), "disk write": kv / 2 / 2, "GPU": w * 128 / 64,
               "CPU attention": kv * 9.5 / 64}, "decode")
    t.eq((pre_s, gen_s), (pre["GPU"], 2 * (gen["to GPU"] + gen["GPU"] + gen["CPU attention"])), "sums")
    rows = {(r["paper"], r["model"], r["prompt"], r["gen"], r["kept"]): r for r in papers.part_a()}
    t.eq(len(rows), len(papers.ROWS), "a row each")
    for key, want in {("opt-30b", 512): "7.14", ("opt-30b", 1024): "3.62", ("opt-175b", 512): "0.15"}.items():
        t.eq(f"{rows[papers.FLEXGEN, key[0], key[1], 32, 0]['fitted']:.2f}", want, f"{key}")
    far = [k for k, r in rows.items() if abs(r["mended_error"]) > 0.2]
    t.eq(far, [], "more than 20 % from what was published")
    t.check(all(abs(r["fitted_error"]) <= 0.2 or r["notes"] for r in rows.values()), "unexplained")


def test_papers(t):
    p = subprocess.run([sys.executable, os.path.join(TOP, "bench", "papers.py"), "--out", t.path("papers")], capture_output=True, text=True)
    t.check(p.returncode == 0, p.stderr[-1000:])
    md, got = t.read("papers.md").decode(), json.loads(t.read("papers.json"))
    t.eq(md, p.stdout, "what is written and what is printed")
    t.check("Nothing in this file was measured by us" in md and "bench/papers.py --out" in md, md[:600])
    t.eq(len(got["flexgen"]), md.count("| FlexGen, table 2 |") + md.count("| H2O, table 3 |"), "rows")


def test_flexgens_machine(t):
    """Its constants, in a profile's terms."""
    row, c = papers.Row("", "opt-30b", 100, 32, 64, 2, papers.HOST, 1, 0.1), papers.Fitted(gpu_mem=100e9)
    hw = json.load(open(os.path.join(TOP, "configs", "hardware", "t4-gcp.json")))
    m = papers.machine(hw, row, c)
    t.eq(m["gpu"]["linear"][0]["over_m"]["x"], [1, 43, 64, 256], "rows: until the products limit, of a step, of a prompt")
    t.eq(m["gpu"]["linear"][0]["over_m"]["y"], [100e9, 4.3e12, 4.3e12, 21.24e12], "flops")
    t.eq(papers.machine(hw, row, papers.Fitted())["gpu"]["linear"][0]["over_m"]["x"], [64, 256], "no memory rate")
    t.eq((m["gpu"]["prompt"][0]["over_tokens"]["y"], m["gpu"]["decode"][0]["over_entries"]["y"], m["host"]["decode"][0]["over_entries"]["y"]), ([9.97e12 / 2], [0.079e12], [0.0123e12]), "attention")
    t.eq([round(m["links"][k]["value"] / papers.GIB, 3) for k in ("h2d", "d2h")], [12.89, round((4 * 21 + 200) / (4 * 21 / 0.97 + 200 / 4.82), 3)], "links")
    t.eq((m["disk"]["read"]["value"], m["disk"]["write"]["value"], m["gpu"]["mem"]["value"], hw["disk"]["read"]["value"]), (0.473 * papers.GIB, 0.746 * papers.GIB, 15, 2), "disk, memory")


def test_flexgens_schedule(t):
    """Part (a) in simulation: what nothing hides takes as long as FlexGen's equations say; the next layer's weights come beside the first micro-batch."""
    a = argparse.Namespace(penstock=t.exe, hardware=os.path.join(TOP, "configs", "hardware", "t4-gcp.json"))
    rows, keys = papers.ROWS, ((papers.FLEXGEN, "opt-30b", 1024, 32), (papers.H2O, "opt-6.7b", 512, 32))
    papers.ROWS = [r for r in rows if (r.paper, r.model, r.prompt, r.gen) in keys]
    try:
        got = papers.part_a()
        papers.simulate_a(a, got)
    finally:
        papers.ROWS = rows
    host, gpu, h2o = got
    t.check(all(x["simulated_mended"]["at_once"] for x in got) and host["simulated_notes"] == ["first", "hides"] and gpu["simulated_notes"] == gpu["notes"], f"{got}")
    for x in (gpu, h2o):
        for k in ("fitted", "mended"):
            t.near(x["simulated_" + k]["tokens_per_s"], x[k], 0.05 * x[k], f"{k}, {x['kept']} entries")
    layers, h1, h2 = papers.shape("opt-30b")
    weights, c = 8 * h1 ** 2 + 4 * h1 * h2, papers.Fitted()
    work = 20 * weights / c.matmul_g + 4 * h1 * 20 * 1025 / papers.cpu_rate(c, 20, h1)      # of a micro-batch: products on the GPU, then attention on the host
    step = max(work, weights / c.to_gpu) + 3 * work
    t.near(host["simulated_mended"]["decode_s"] / 31 / layers, step, 0.03 * step, "a step of a layer")
    text = "\n".join(papers.text_simulated(got))
    t.check("**Simulated, not run**" in text and (text.count("| FlexGen, table 2 |"), text.count("| H2O, table 3 |")) == (1, 2), text)


def test_papers_with_penstock(t):
    """Part (b) of one row with few requests: predicted, below its floor."""
    rows, papers.ROWS = papers.ROWS, [r for r in papers.ROWS if r.model == "opt-6.7b" and r.kept == 102]
    a = argparse.Namespace(penstock=t.exe, hardware=os.path.join(TOP, "configs", "hardware", "t4-gcp.json"), requests=16)
    try:
        got, = papers.part_b(a)
    finally:
        papers.ROWS = rows
    p = got["plan"]
    t.check(0 < p["tokens_per_s"] < got["floor"] and p["kv_entries"] == 102 and p["limit"] in "\n".join(papers.text_b(a, [got])), f"{got}")


SWEEP = [{"host-mem": m, "kv-budget": b, "tokens_per_s": v, "latency_s": s, "total_s": s and 9 * s, "gpu_busy": 50, "disk_read_busy": 99.5}
         for m, b, v, s in (("32G", "10%", 4, 1), ("32G", "100%", 2, 2), ("64G", "10%", 4.5, 3), ("64G", "100%", 4.25, 2.5), ("16G", "10%", None, None), ("64G", "100%", 4, 5))]
BENCH = {"rows": [{"name": "full", "prompt_len": 8, "gen_len": 4, "tokens_per_s": {"median": 5.0}, "memory": {"gpu": gpu}, "runs": [
    {"complete": True, "tokens_per_s": v, "total_s": 10.0, "links": {q: {"bytes": 1, "busy_s": s} for q, s in
     (("compute", v), ("host", 1), ("h2d", 8), ("up", 3), ("d2h", 0.5), ("read", 2), ("write", 0))}} for v in (4, 5, 6)]} for gpu in (None, 1 << 30)]}
PREDICT = [{"name": n, "limit": k, "predicted_s": p, "measured_s": m, "spread": [0.9 * m, m]} for n, k, p, m in (("a", "disk", 1.05, 1), ("b", "KV", 9, 10), ("c", "KV", 50, 50))]


def test_plots_data(t):
    """What is drawn, from JSON and from CSV: sizes and percents are numbers, points without a plan are none, the frontier."""
    t.eq([plot.number(v) for v in ("32G", "50%", "1.5e3", "2GB/s", "2GiB", "4 TFLOP/s", "h2o", "", None, 7)],
         [32 * 2 ** 30, 0.5, 1500.0, 2e9, 2 ** 31, 4e12, "h2o", "", None, 7], "numbers")
    t.write("s.json", json.dumps({"command": "penstock plan x", "points": SWEEP}))
    t.write("s.csv", "\n".join(",".join("" if v is None else str(v) for v in r) for r in [list(SWEEP[0])] + [list(r.values()) for r in SWEEP]))
    for name, command in (("s.json", "penstock plan x"), ("s.csv", None)):
        rows, got = plot.load(t.path(name))
        t.eq((len(rows), got), (len(SWEEP), command), name)
        g = 2.0 ** 30
        t.eq(plot.lines(rows, "kv-budget", "tokens_per_s", "--host-mem"), {32 * g: [(0.1, 4), (1, 2)], 64 * g: [(0.1, 4.5), (1, 4.25)]}, f"lines of {name}")
        t.eq(plot.pareto([(s, v) for s, v in zip(plot.column(rows, "latency_s"), plot.column(rows, "tokens-per-s")) if plot.is_number(s)]), [(1, 4), (2.5, 4.25), (3, 4.5)], "frontier")
    t.write("b.json", json.dumps(BENCH))
    one = {"name": "full", "prompt_len": 8, "gen_len": 4, "tokens_per_s": 5.0, "total_s": 10.0, "disk_read_busy": 20.0, "disk_write_busy": 0.0}
    t.eq(plot.load(t.path("b.json"))[0], [{**one, "host_busy": 50.0}, {**one, "host_busy": 10.0, "gpu_busy": 50.0, "h2d_busy": 100, "d2h_busy": 5.0}], "bench")
    for words, args in (("no list of points", ["over", t.write("bad.json", "{}"), "--x", "a"]), ("the data have no nothing; they have host-mem", ["over", t.path("s.csv"), "--x", "nothing"]),
                        ("--x", ["over", t.path("s.csv")]), ("no rows", ["over", t.write("none.json", "[]"), "--x", "a"]),
                        ("no list of points", ["over", t.write("number.json", "7"), "--x", "a"]), ("nor JSON", ["over", t.write("two.jsonl", "{}\n{}\n"), "--x", "a"]),
                        ("No such file", ["over", t.path("nowhere.csv"), "--x", "a"])):
        p = run_plot(t, *args)
        t.check(p.returncode and (words in p.stderr or "matplotlib is missing" in p.stderr) and "Traceback" not in p.stderr, f"{args}: {p.stderr}")


WAITS = [{**r, "wait_weights": 20, "wait_kv": 15.5, "wait_other": 4.5} for r in SWEEP if r["total_s"]]
REPORT = {"time": {"load": 2, "prefill": 1, "decode": 3}, "throughput": {"total": 7}, "wait_s": {"weights": 1, "kv": 0.5, "compute": 2, "tokenizer": None, "output": 0.25}}


def test_plots_causes(t):
    """What the time goes to, in percent, of a sweep, a bench and a report; what is left is idle."""
    t.write("w.json", json.dumps({"points": WAITS}))
    want = {"of_compute": 50, "of_weights": 20, "of_kv": 15.5, "of_other": 4.5, "of_idle": 10}
    t.eq([{k: v for k, v in r.items() if k in plot.CAUSES} for r in plot.load(t.path("w.json"))[0]], [want] * len(WAITS), "of a sweep")
    t.write("r.json", json.dumps(REPORT))
    t.eq(plot.load(t.path("r.json"))[0], [{"name": "r.json", "total_s": 4, "tokens_per_s": 7, "of_compute": 50, "of_weights": 25, "of_kv": 12.5, "of_tokenizer": 0, "of_output": 6.25, "of_idle": 6.25}], "of a report")
    t.write("b.json", json.dumps({"rows": [{**r, "runs": [{**x, "wait_s": {"weights": 1, "kv": 2, "other": 0.5, "idle": 9}} for x in r["runs"]]} for r in BENCH["rows"]]}))
    t.eq([plot.load(t.path("b.json"))[0][0][k] for k in want], [50, 10, 20, 5, 15], "of a bench, in the middle run")
    t.write("s.json", json.dumps({"points": SWEEP}))
    p = run_plot(t, "causes", t.path("s.json"))
    t.check(p.returncode and ("no waits" in p.stderr or "matplotlib is missing" in p.stderr), p.stderr)


def run_plot(t, *args):
    return subprocess.run([sys.executable, os.path.join(TOP, "bench", "plot.py"), *args, "-o", t.path("out.png")], capture_output=True, text=True)


def test_plots(t):
    try:
        import matplotlib                               # noqa: F401
    except ImportError:
        t.skip("no matplotlib here")
    t.write("s.json", json.dumps({"command": "penstock plan x", "points": SWEEP}))
    t.write("p.json", json.dumps(PREDICT))
    for args in (["over", t.path("s.json"), "--x", "kv-budget", "--by", "host-mem"], ["over", t.path("s.json"), "--x", "host-mem"], ["frontier", t.path("s.json"), "--by", "kv-budget"],
                 ["busy", t.path("s.json"), "--name", "host-mem"], ["busy", t.write("b.json", json.dumps(BENCH))],
                 ["causes", t.write("w.json", json.dumps({"points": WAITS})), t.write("r.json", json.dumps(REPORT))], ["predicted", t.path("p.json"), "--command", "bench/predict.py"]):
        p = run_plot(t, *args)
        t.check(p.returncode == 0, f"{args}: {p.stderr[-800:]}")
        png = t.read("out.png")
        t.check(png[:8] == b"\x89PNG\r\n\x1a\n" and len(png) > 10000, f"{args}: {len(png)} bytes")
        os.unlink(t.path("out.png"))
