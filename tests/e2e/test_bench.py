# SPDX-License-Identifier: Apache-2.0
"""penstock bench: its table, JSON and FlexGen's log lines, suites, schedules that change no token, and what stops it."""
import json, os, re, signal

from harness import Gpu, TOP, cases, smoke, threads

CONFIGS = os.path.join(TOP, "configs")
TINY = os.path.join(CONFIGS, "bench", "tiny.json")
T4 = os.path.join(CONFIGS, "hardware", "t4-gcp.json")
SHAPE = ["--gpu-batch-size", "3", "--num-gpu-batches", "2"]


def bench(t, *args, **kw):
    """-> the JSON of -o."""
    t.last = t.run("bench", *args, "-o", "bench.json", **kw)
    return json.loads(t.read("bench.json"))


def table(t):
    """-> {row: {head: cell}}, or a list of them where names come twice."""
    lines = [[c.strip() for c in x.strip("|").split("|")] for x in t.last.out.splitlines() if x.startswith("|")]
    return [dict(zip(lines[0], x)) for x in lines[2:]]


def flexgen_log(text):
    """FlexGen's read_benchmark_log (flexgen/utils.py), of each block of five lines."""
    lines, out = text.splitlines(), []

    def extract(line):
        a, b = line.split("\t")
        return float(a[a.index(":") + 1:a.index(" s")]), float(b[b.index(":") + 1:b.index(" to")])

    for i in range(0, len(lines), 5):
        out.append(sum((extract(lines[i + k]) for k in (2, 3, 4)), ()))
    return out


@smoke
def test_table_json_and_log(t):
    d = bench(t, t.model("pre-f16"), "--prompt-len", "9", "--gen-len", "4,6", "--kv-policy", "full,h2o", "--kv-budget", "50%", *SHAPE,
              "--repeats", "2", "--log", "bench.log")
    t.eq([(r["name"], r["prompt_len"], r["gen_len"]) for r in d["rows"]],
         [("full", 9, 4), ("h2o", 9, 4), ("full", 9, 6), ("h2o", 9, 6)], "rows")
    for r in d["rows"]:
        runs = r["runs"]
        t.eq([len(runs), r["complete"], r["requests"], r["error"]], [2, True, 12, None], "two rounds of two blocks")
        for x in runs:
            t.check(x["complete"] and not x["projected"] and x["requests"] == 12, f"a run: {x}")
            t.near(x["tokens_per_s"], 12 * r["gen_len"] / x["total_s"], 1e-6 * x["tokens_per_s"], "tokens/s")
            t.near(x["decode_per_s"], 12 * (r["gen_len"] - 1) / x["decode_s"], 1e-6 * x["decode_per_s"], "decode/s")
            t.near(x["prefill_per_s"], 12 * 9 / x["prefill_s"], 1e-6 * x["prefill_per_s"], "prefill/s")
        rates = sorted(x["tokens_per_s"] for x in runs)
        t.eq([r["tokens_per_s"][k] for k in ("least", "most")], [rates[0], rates[-1]], "spread")
        t.near(r["tokens_per_s"]["median"], sum(rates) / 2, 1e-9 * rates[1], "median")
        t.eq(runs[0]["outputs"], runs[1]["outputs"], "outputs of two rounds")
    t.check(d["rows"][1]["plan"]["kv_entries"] == round((9 + 4) / 2 + 0.01), f"H2O's entries: {d['rows'][1]['plan']}")
    t.near(d["rows"][3]["of_first"], d["rows"][3]["tokens_per_s"]["median"] / d["rows"][2]["tokens_per_s"]["median"], 1e-9, "ratio")
    t.check(d["machine"]["cpus"] >= 1 and d["machine"]["gpu"] is None, f"{d['machine']}")
    t.check(d["complete"] and not d["projected"] and not d["simulated"] and not d["model"]["random_weights"], f"{d}")
    rows = table(t)
    t.eq([x["row"] for x in rows], [r["name"] for r in d["rows"]], "the table's rows")
    t.eq([x["of first"] for x in rows][::2], ["1.00 x"] * 2, "the table's ratios")
    log = t.read("bench.log").decode()
    t.check(re.fullmatch(r"(model size: [\d.]+ GB\tcache size: [\d.]+ GB\thidden size \(p\): [\d.]+ GB\npeak gpu mem: [\d.]+ GB\tprojected: False\n"
                         r"prefill latency: [\d.]+ s\tprefill throughput: [\d.]+ token/s\ndecode latency: [\d.]+ s\tdecode throughput: [\d.]+ token/s\n"
                         r"total latency: [\d.]+ s\ttotal throughput: [\d.]+ token/s\n){4}", log), f"FlexGen's lines:\n{log}")
    for r, x in zip(d["rows"], flexgen_log(log)):
        total = [y for y in r["runs"] if abs(y["tokens_per_s"] - x[5]) < 0.001]
        t.check(total and abs(total[0]["prefill_s"] - x[0]) < 0.001, f"the log has {x}")


SCHEDULES = [["--no-overlap"], ["--barrier"], ["--no-continuous"], ["--prefetch", "1"], ["--no-overlap", "--barrier", "--no-continuous"]]


JOB = ["--prompt-len", "11", "--gen-len", "7", "--requests", "11", "--kv-policy", "full,h2o", "--kv-budget", "50%"]


def same_tokens(t, model, gpu, job, *options):
    want = None
    for how in [[]] + SCHEDULES:
        d = bench(t, model, *job, *SHAPE, *options, *how, gpu=gpu)
        got = [r["runs"][0]["outputs"] for r in d["rows"]]
        want = want or got
        t.eq(got, want, f"outputs with {how} {options}")
        t.eq(d["rows"][0]["schedule"], [x[2:] for x in how if x in ("--no-overlap", "--barrier", "--no-continuous")], "schedule")
    return want


@threads
@cases(disk=["--weights", "disk:100", "--kv", "disk:100", "--hidden", "disk:100"], mixed=["--weights", "host:40,disk:60", "--kv", "host:50,disk:50"])
def test_schedules_change_no_token(t, options):
    a = same_tokens(t, t.model("pre-f16"), None, JOB, *options)
    d = bench(t, t.model("pre-f16"), *JOB, "--gpu-batch-size", "11", "--seed", "0")
    t.eq([r["runs"][0]["outputs"] for r in d["rows"]], a, "outputs of another placement and block")
    d = bench(t, t.model("pre-f16"), *JOB, "--seed", "1")
    t.check(d["rows"][0]["runs"][0]["outputs"] != a[0], "other prompts, the same outputs")


@cases(host=["--percent", "40", "60", "0", "100", "0", "100", "--attention", "host"],
       gpu=["--percent", "30", "30", "30", "40", "50", "50", "--attention", "gpu"])
def test_schedules_change_no_token_gpu(t, options):
    job = ["--prompt-len", "5", "--gen-len", "4", "--requests", "7", "--kv-policy", "h2o", "--kv-budget", "70%"]
    same_tokens(t, t.model("post-bf16"), Gpu(seed=3), job, *options)


def cached(t):
    d = os.path.join(t.path("packed"))
    return sorted(os.listdir(d)) if os.path.isdir(d) else []


def test_suite(t):
    """Random weights are made once, kept if wanted, and removed otherwise."""
    d = bench(t, "--suite", TINY, "--pack-dir", t.path("packed"))
    t.eq([r["name"] for r in d["rows"]], ["full", "h2o", "no overlap", "barriers", "in blocks"], "rows")
    t.check(d["model"]["random_weights"] and d["source"] == "for tests: seconds on any machine", f"{d['model']}, {d['source']}")
    t.eq(d["rows"][0]["published"], {"tokens_per_s": 1, "source": "nobody"}, "published")
    t.eq(len({r["runs"][0]["outputs"] for r in d["rows"] if r["name"] != "h2o"}), 1, "outputs of the schedules")
    t.eq([x["published"] for x in table(t)], ["1.000", "-", "-", "-", "-"], "the table's published figures")
    t.eq(cached(t), [], "folders left")
    bench(t, "--suite", TINY, "--pack-dir", t.path("packed"), "--keep")
    kept = cached(t)
    t.eq(len(kept), 1, f"kept: {kept}")
    before = os.stat(os.path.join(t.path("packed"), kept[0])).st_mtime_ns
    again = bench(t, "--suite", TINY, "--pack-dir", t.path("packed"))
    t.eq((cached(t), os.stat(os.path.join(t.path("packed"), kept[0])).st_mtime_ns), (kept, before), "kept ones were not used again")
    t.eq(again["rows"][0]["runs"][0]["outputs"], d["rows"][0]["runs"][0]["outputs"], "outputs of the same random weights")


def test_all_suites(t):
    """Each file of configs/bench runs, in simulation, on the machine of the papers (the longest in test_simulated)."""
    for name in sorted(os.listdir(os.path.join(CONFIGS, "bench"))):
        if name not in ("flexgen-175b.json", "flexgen-30b.json", "h2o-30b.json"):
            d = bench(t, "--suite", os.path.join(CONFIGS, "bench", name), "--hardware", T4, timeout=120)
            t.check(all(r["error"] is None for r in d["rows"]), f"{name}: {[r['error'] for r in d['rows']]}")


def test_all_models(t):
    """Every configuration that comes along is planned for and simulated; more models than a suite may have are refused."""
    models = sorted(os.listdir(os.path.join(CONFIGS, "models")))
    rows = [{"name": m, "model": os.path.join(CONFIGS, "models", m), "prompt_len": 60, "gen_len": 8, "requests": 8} for m in models]
    shape = {"gpu-batch-size": 4, "num-gpu-batches": 2, "prefetch": 1, "prefill-tokens": 240}
    t.write("s.json", json.dumps({"options": shape, "rows": rows}))
    d = bench(t, "--suite", "s.json", "--hardware", T4)
    t.eq([r["model"] for r in d["rows"]], [m[:-len(".json")] for m in models], "models")
    t.check(all(r["error"] is None and r["tokens_per_s"]["median"] > 0 for r in d["rows"]), f"{[r['error'] for r in d['rows']]}")
    t.write("s.json", json.dumps({"rows": rows + [{**rows[0], "model": f"{i}.json"} for i in range(17 - len(rows))]}))
    t.run("bench", "--suite", "s.json", "--hardware", T4, rc=1).says("model: too many models")


def test_simulated(t):
    d = bench(t, "--suite", os.path.join(CONFIGS, "bench", "flexgen-175b.json"), "--hardware", T4, "--log", "bench.log", timeout=120)
    t.check(d["simulated"] and d["hardware"].startswith("T4"), f"{d['hardware']}")
    t.last.says("simulated on that machine")
    for r in d["rows"]:
        x = r["runs"][0]
        t.check(x["complete"] and x["outputs"] is None and x["peak_host_bytes"] is None and x["limited_by"] == "disk read", f"{x}")
        t.near(x["tokens_per_s"], r["published"]["tokens_per_s"], 0.3 * x["tokens_per_s"], "tokens/s, which the disk decides, beside the paper's")
    t.check(t.read("bench.log").decode().count("projected: True") == 2, "the log calls it measured")
    few = bench(t, os.path.join(CONFIGS, "models", "opt-1.3b.json"), "--hardware", os.path.join(CONFIGS, "hardware", "epyc-9654.json"), "--requests", "20", "--threads", "24,96")
    t.check(few["rows"][1]["of_first"] > 2, f"a quarter of the threads: {few['rows'][1]['of_first']}")
    slow = bench(t, "--suite", os.path.join(CONFIGS, "bench", "flexgen-30b.json"), "--hardware", T4, "--no-overlap", timeout=120)
    ours = bench(t, "--suite", os.path.join(CONFIGS, "bench", "flexgen-30b.json"), "--hardware", T4, timeout=120)
    for a, b in zip(slow["rows"], ours["rows"]):
        t.check(a["tokens_per_s"]["median"] < 0.8 * b["tokens_per_s"]["median"], f"without overlap {a['tokens_per_s']}, with {b['tokens_per_s']}")


def test_this_machine(t):
    """What was probed of it; not another machine's, or a damaged file, which are told and probed anew."""
    model, env = os.path.join(CONFIGS, "models", "opt-125m.json"), {"XDG_CACHE_HOME": t.path("cache")}
    t.run("probe", "--quick", "--seconds", "1", "--threads", "2", "--host-mem", "256M", "--disk-space", "0", env=env)
    probed = json.loads(t.read("cache/penstock/hardware.json"))
    d = bench(t, model, "--hardware", "this", "--requests", "4", env=env)
    t.eq((d["hardware"], d["simulated"]), (probed["name"], True), "this machine's profile")
    with open(T4, "rb") as f:
        foreign = f.read()
    for text, words in ((foreign, "another machine's"), (b'{"name": ', "hardware.json")):
        t.write("cache/penstock/hardware.json", text)
        for command in ("bench", "plan"):
            p = t.start(command, model, "--hardware", "this", env=env)
            told = p.stderr.readline() + p.stderr.readline()
            p.send_signal(signal.SIGINT)
            r = t.finish(p)
            t.eq((r.rc, r.out), (130, ""), f"{command}, stopped in its probe")
            t.check(b"not used" in told and words.encode() in told and b"a quick one is made now" in told, f"{told!r}")


@cases(model=(["nowhere"], 1, ["nowhere"]), lengths=([os.path.join(CONFIGS, "models", "opt-125m.json"), "--prompt-len", "2040"], 2, ["2048 positions"]),
       job=([os.path.join(CONFIGS, "models", "opt-125m.json"), "--job", "text.jsonl"], 1, ["no valid request"]))
def test_before_probe(t, case):
    """What is wrong is told before this machine is probed."""
    args, rc, words = case
    t.write("text.jsonl", '{"prompt": "in words"}\n')
    r = t.run("bench", *args, "--hardware", "this", rc=rc).says(*words)
    t.check("probe" not in r.err, r.err)


def test_planner(t):
    """The plan is the one that `penstock plan` finds."""
    args = [os.path.join(CONFIGS, "models", "opt-30b.json"), "--hardware", T4, "--prompt-len", "512", "--gen-len", "64", "--requests", "900", "--kv-policy", "h2o"]
    row, = bench(t, *args)["rows"]
    best = json.loads(t.run("plan", *args, "--top", "1", "--json").out)["plans"][0]
    t.eq([row["plan"][k] for k in ("gpu_batch_size", "num_gpu_batches", "prefill_tokens", "prefetch", "kv_entries")],
         [best[k] for k in ("gpu_batch_size", "num_gpu_batches", "prefill_tokens", "prefetch", "kv_entries")], "plan")
    t.near(row["runs"][0]["total_s"], best["total_s"], 0.01 * best["total_s"], "time")


def sums(run):
    """Tokens of prompts, and generated."""
    return round(run["prefill_per_s"] * run["prefill_s"]), round(run["tokens_per_s"] * run["total_s"])


def test_mixed_lengths(t):
    """Drawn from ranges: by the seed, whatever the block; in a run and in its simulation alike."""
    args = [t.model("pre-f16"), "--prompt-len", "3-20", "--gen-len", "2-9,4", "--requests", "23"]
    a = bench(t, *args, *SHAPE, "--kv", "disk:100")["rows"]
    t.eq([(r["prompt_len"], r["gen_len"], r["lengths"]) for r in a],
         [(None, None, {"job": None, "prompt_len": [3, 20], "gen_len": [2, 9]}), (None, 4, {"job": None, "prompt_len": [3, 20], "gen_len": [4, 4]})], "lengths")
    t.eq([x["tokens"] for x in table(t)], ["3-20 + 2-9", "3-20 + 4"], "the table's lengths")
    b = bench(t, *args, "--gpu-batch-size", "23")["rows"]
    t.eq([r["runs"][0]["outputs"] for r in a], [r["runs"][0]["outputs"] for r in b], "outputs of another block")
    c = bench(t, *args, "--hardware", T4)["rows"]
    for x, y, z in zip(a, b, c):
        got = sums(x["runs"][0])
        t.eq((sums(y["runs"][0]), sums(z["runs"][0])), (got, got), "tokens")
        t.check(23 * 3 < got[0] < 23 * 20 and got[1] == 23 * 4 or 23 * 2 < got[1] < 23 * 9, f"{got}")
    d = bench(t, *args, *SHAPE, "--seed", "1")["rows"]
    t.check(sums(d[0]["runs"][0]) != sums(a[0]["runs"][0]), "another seed drew the same lengths")
    open_end, = bench(t, t.model("pre-f16"), "--prompt-len", "3-20", "--gen-len", "2-9", *SHAPE)["rows"]
    t.eq((open_end["requests"], open_end["complete"]), (12, True), "two blocks")
    t.run("bench", *args, "--project", "1", rc=2).says("--project", "not all alike")
    t.run("bench", args[0], "--prompt-len", "3-20", "--requests", "4000000000", rc=2).says("4000000000", "10000000")


def test_job_lengths(t):
    """Those of a file's requests, over and over if more are wanted."""
    lengths = [(3 + 2 * i, 1 + i) for i in range(9)]
    t.write("job.jsonl", "".join(json.dumps({"prompt": list(range(4, 4 + n)), "max_tokens": m}) + "\n" for n, m in lengths) + '{"prompt": [5, 6, 7]}\n{"prompt": 3}\n')
    lengths.append((3, 6))
    for extra in ([], ["--hardware", T4]):
        row, = bench(t, t.model("pre-f16"), "--job", "job.jsonl", "--gen-len", "6", *SHAPE, *extra)["rows"]
        t.eq((row["requests"], row["lengths"]), (10, {"job": "job.jsonl", "prompt_len": [3, 19], "gen_len": [1, 9]}), "requests")
        t.eq(sums(row["runs"][0]), (sum(n for n, _ in lengths), sum(m for _, m in lengths)), "tokens")
        t.last.says("1 of 11 lines in error and left out, the first line 11: prompt: a string")
    row, = bench(t, t.model("pre-f16"), "--job", "job.jsonl", "--gen-len", "6", "--requests", "13", *SHAPE)["rows"]
    t.eq(sums(row["runs"][0]), tuple(sum(x[k] for x in lengths + lengths[:3]) for k in (0, 1)), "tokens of a job and a part of it")
    t.run("bench", t.model("pre-f16"), "--job", "nowhere.jsonl", rc=1).says("nowhere.jsonl", "regular file")
    t.run("bench", t.model("pre-f16"), "--job", t.write("none.jsonl", "{}\n"), rc=1).says("none.jsonl", "no valid request")


def test_several_models(t):
    """Each row on its own; random weights of both are made, and removed."""
    t.write("job.jsonl", '{"prompt": [5, 6, 7, 8], "max_tokens": 3}\n' * 5)
    small = json.load(open(os.path.join(TOP, "models", "demo-opt", "config.json")))
    t.write("small.json", json.dumps({**small, "num_hidden_layers": 1, "_name_or_path": "small"}))
    row = {"prompt_len": 5, "gen_len": 3, "requests": 4}
    t.write("suite.json", json.dumps({"model": os.path.join(TOP, "models", "demo-opt", "config.json"), "rows": [
        {**row, "name": "a"}, {**row, "name": "b", "model": "small.json"}, {**row, "name": "c", "model": "small.json", "prompt_len": "2-9"},
        {"name": "d", "model": "small.json", "job": "job.jsonl"}]}))
    d = bench(t, "--suite", "suite.json", "--pack-dir", t.path("packed"))
    names = ["demo-opt", "small", "small", "small"]
    t.eq(([r["model"] for r in d["rows"]], d["model"]), (names, None), "models")
    t.eq([x["model"] for x in table(t)], names, "the table's models")
    t.check(all(r["complete"] for r in d["rows"]) and d["rows"][0]["runs"][0]["outputs"] != d["rows"][1]["runs"][0]["outputs"], "outputs")
    t.eq([r["of_first"] for r in d["rows"]], [1] * 4, "each is the first of its model and lengths")
    t.eq((d["rows"][3]["requests"], sums(d["rows"][3]["runs"][0])), (5, (20, 15)), "the job")
    t.eq(cached(t), [], "folders left")
    e = bench(t, t.model("pre-f16"), "--suite", "suite.json", "--pack-dir", t.path("packed"))
    t.eq([r["model"] for r in e["rows"]][1:], names[1:], "MODEL stands in for the suite's, not for a row's own")
    t.eq(e["rows"][1]["runs"][0]["outputs"], d["rows"][1]["runs"][0]["outputs"], "outputs")
    t.write("own.json", json.dumps({"model": "nowhere.json", "rows": [{**row, "name": "a", "model": "small.json"}]}))
    own = bench(t, "--suite", "own.json", "--pack-dir", t.path("packed"))
    t.eq(own["model"]["name"], "small", "a suite's model that no row has is not opened")
    bench(t, "--suite", "suite.json", "--pack-dir", t.path("packed"), "--keep")
    t.eq(len(cached(t)), 2, f"kept: {cached(t)}")


def test_projected(t):
    args = (t.model("pre-f16"), "--prompt-len", "9", "--gen-len", "90", *SHAPE, "--prefill-tokens", "20", "--kv", "disk:100", "--kv-policy", "full,h2o")
    d = bench(t, *args, "--project", "4", "--log", "bench.log")
    t.check(d["projected"], "not marked")
    t.last.says("projected: 4 sweeps")
    whole = bench(t, *args, "--requests", "6")
    for a, b in zip(d["rows"], whole["rows"]):
        x, y = a["runs"][0], b["runs"][0]
        t.check(x["projected"] and not y["projected"] and x["complete"], "a run is not marked, or a whole one is")
        t.eq((x["requests"], a["requests"], x["outputs"]), (6, 6, None), "of one block")
        t.check(x["sweeps"] <= 3 * 5 + 8 < 90 <= y["sweeps"], f"{x['sweeps']} sweeps, {y['sweeps']} in the whole")
        t.near(x["tokens_per_s"], 6 * 90 / x["total_s"], 1e-6 * x["tokens_per_s"], "tokens/s")
    t.eq(t.read("bench.log").decode().count("projected: True"), 2, "log")
    short = bench(t, t.model("pre-f16"), "--prompt-len", "9", "--gen-len", "12", *SHAPE, "--project", "4")
    t.check(not short["rows"][0]["runs"][0]["projected"], "a run too short to be projected is")


SUITE = {"model": "m", "rows": [{"name": "a", "prompt_len": 5, "gen_len": 3}]}


def with_row(**fields):
    return {**SUITE, "rows": [SUITE["rows"][0], {**SUITE["rows"][0], **fields}]}


@cases(
    no_json=("{", "json"), list=("[]", "json"), field=({**SUITE, "speed": 3}, "speed: no such field"), rows=({"model": "m"}, "rows: a list"),
    no_rows=({**SUITE, "rows": []}, "rows: a list"), row=({**SUITE, "rows": [3]}, "rows[0]"), row_field=(with_row(batch=3), "rows[1].batch: no such field"),
    name=(with_row(name=""), "rows[1].name"), length=(with_row(prompt_len=0), "rows[1].prompt_len: a whole number"), text=(with_row(gen_len="three"), "rows[1].gen_len"),
    falls=(with_row(gen_len="9-3"), "rows[1].gen_len: a whole number of 1 or more, or a range"), lengths=(with_row(job="j"), "rows[1].prompt_len: the job says"),
    row_model=(with_row(model=3), "rows[1].model: a text"), job=(with_row(job=""), "rows[1].job: a path"),
    missing=({**SUITE, "rows": [{"name": "a", "prompt_len": 5}]}, "rows[0].gen_len: is missing"), requests=(with_row(requests=-1), "rows[1].requests"),
    option=(with_row(options={"speed": 3}), "rows[1].options.speed: no such option"), value=(with_row(options={"gpu-batch-size": "x"}), "rows[1].options.gpu-batch-size"),
    kind=(with_row(options={"percent": [1]}), "rows[1].options.percent"), six=(with_row(options={"percent": "1 2 3"}), "rows[1].options.percent"),
    options=(with_row(options=3), "rows[1].options"), schedule=(with_row(schedule=["fast"]), "rows[1].schedule"), schedules=(with_row(schedule="barrier"), "rows[1].schedule"),
    published=(with_row(published={"tokens_per_s": 0}), "rows[1].published.tokens_per_s"), claim=(with_row(published={"tokens_per_s": 1, "by": "me"}), "rows[1].published.by"),
    model=({"rows": SUITE["rows"]}, "model: is missing"), twice=('{"rows": [], "rows": []}', "rows"))
def test_bad_suite(t, case):
    data, words = case
    t.write("suite.json", data if isinstance(data, str) else json.dumps(data))
    t.run("bench", "--suite", "suite.json", rc=1).says("suite.json", words)


@cases(
    nothing=([], "MODEL"), two=(["a", "b"], "only one MODEL"), length=(["m", "--prompt-len", "5,"], "--prompt-len 5,"), zero=(["m", "--gen-len", "0"], "--gen-len 0"),
    list=(["m", "--kv-policy", "full,h3o"], "h3o: not supported"), empty=(["m", "--threads", "1,,2"], "--threads 1,,2"), again=(["m", "--threads=1,2", "--threads", "2,3"], "given twice"),
    repeats=(["m", "--repeats", "0"], "--repeats 0"), seed=(["m", "--seed", "x"], "--seed x"), both=(["--suite", "s", "--gen-len", "3"], "--suite"),
    sweep=(["--suite", "s", "--threads", "1,2"], "--suite"), project=(["m", "--hardware", "h", "--project", "3"], "--project"),
    falls=(["m", "--prompt-len", "9-3"], "--prompt-len 9-3"), both_lengths=(["m", "--job", "j", "--prompt-len", "3"], "--job says"), suite_job=(["--suite", "s", "--job", "j"], "--suite"),
    range=(["m", "--job", "j", "--gen-len", "3-4"], "one number"),
    many=(["m", *(f"--{o}=" + ",".join(["1"] * 64) for o in ("kv-heavy", "kv-recent", "kv-sinks", "host-mem", "gpu-mem", "gpu-batch-size", "num-gpu-batches", "prefill-tokens", "threads",
                                                            "queue-depth", "prefetch"))], "1000 rows are the most"), share=(["m", "--percent", "20"], "six numbers"))
def test_bad_options(t, case):
    t.run("bench", *case[0], rc=2).says(case[1])
    t.eq([x for x in os.listdir(t.dir)], [], "files")


def test_bad_places(t):
    m = t.model("pre-f16")
    t.run("bench", "missing", rc=1).says("missing")
    t.run("bench", m, "-o", "no/such.json", rc=1).says("-o", "no")
    t.run("bench", m, "--log", t.dir, rc=2).says("--log", "regular file")
    t.run("bench", m, "-o", "x", "--log", "x", rc=2).says("same file")
    for option in ("-o", "--log"):
        t.run("bench", m, option, "-", rc=2).says(f"{option}: - is not stdout here")
    suite = t.write("s.json", json.dumps({"model": m, "rows": [{"name": "a", "prompt_len": 5, "gen_len": 3}]}))
    os.symlink(suite, t.path("link.json"))
    for option, args in (("-o", ["--suite", suite]), ("--log", ["--suite", suite]), ("-o", [m, "--hardware", suite]), ("-o", [m, "--job", suite]), ("-o", [suite])):
        t.run("bench", *args, option, "link.json", rc=2).says(option, "is read, too")
    t.check(json.loads(t.read("s.json"))["model"] == m, "what is read was written")
    t.run("bench", m, "--hardware", "nowhere.json", rc=1).says("--hardware", "nowhere.json")
    t.run("bench", m, "--prompt-len", "100", "--gen-len", "60", rc=2).says("positions")
    t.run("bench", "--suite", "nowhere.json", rc=1).says("--suite", "nowhere.json")


def test_what_does_not_fit(t):
    m = t.model("pre-f16")
    t.run("bench", m, "--prompt-len", "9", "--gen-len", "4", "--host-mem", "64K", rc=4).says("host-mem")
    d = bench(t, m, "--prompt-len", "9", "--gen-len", "4", "--host-mem", "64K,64M", "--requests", "5", rc=3)
    t.check(d["rows"][0]["error"] and not d["rows"][0]["complete"] and d["rows"][0]["runs"] == [], f"{d['rows'][0]}")
    t.check(d["rows"][1]["complete"], "the row that fits was not run")
    t.eq([x["tokens/s"] == "failed" for x in table(t)], [True, False], "the table")


def test_disk_too_small(t):
    s = os.statvfs(t.dir)
    if s.f_bavail * s.f_frsize > 340e9:
        t.skip("OPT-175B would fit on this disk")
    t.run("bench", os.path.join(CONFIGS, "models", "opt-175b.json"), "--pack-dir", t.path("packed"), rc=4).says("random weights take", "free", "--pack-dir")
    t.eq(cached(t), [], "folders left")


def test_leftovers(t):
    """What a killed bench left of random weights is named; what a live one has, and kept ones, are not."""
    gone = t.start("tokenize")
    t.finish(gone)
    names = [f"opt-30b-random-00ff-{gone.pid}", f"opt-30b-random-00ff-{gone.pid}.partial.{gone.pid}", f"opt-30b-random-00ff-{os.getpid()}", "opt-30b-random-00ff", "opt-30b"]
    for n in names:
        os.makedirs(os.path.join(t.path("packed"), n))
    r = t.run("bench", os.path.join(TOP, "models", "demo-opt", "config.json"), "--pack-dir", t.path("packed"), "--prompt-len", "4", "--gen-len", "2", "--requests", "1")
    told = [x for x in r.err.splitlines() if "was left by" in x]
    t.eq(sorted(x.split("/")[-1].split(" ")[0] for x in told), sorted(names[:2]), "named")
    t.eq(cached(t), sorted(names), "what is there")


def test_interrupted(t):
    """The rows that were done are written, marked, and nothing else stays."""
    p = t.start("bench", os.path.join(TOP, "models", "demo-opt", "config.json"), "--pack-dir", t.path("packed"), "--prompt-len", "8", "--gen-len", "4,400",
                "--requests", "60", "--gpu-batch-size", "4", "--repeats", "100", "-o", "bench.json", "--log", "bench.log")
    first = p.stderr.readline()
    p.send_signal(signal.SIGINT)
    r = t.finish(p)
    t.eq(r.rc, 130, "exit")
    t.check(b"round 1 of 100" in first, f"{first!r}")
    d = json.loads(t.read("bench.json"))
    t.check(not d["complete"] and not any(x["complete"] for x in d["rows"]), "not marked")
    t.check(d["rows"][0]["runs"][0]["complete"] and d["rows"][0]["tokens_per_s"]["median"] > 0, "what was done is missing")
    t.eq([x["complete"] for x in d["rows"][1]["runs"]], [False] * len(d["rows"][1]["runs"]), "the row that was stopped")
    t.eq(len(flexgen_log(t.read("bench.log").decode())), 1, "rows in the log")
    t.eq(sorted(x for x in os.listdir(t.dir) if x != "packed"), ["bench.json", "bench.log"], "files")
    t.eq(cached(t), [], "folders left")
