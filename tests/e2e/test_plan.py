# SPDX-License-Identifier: Apache-2.0
"""penstock plan: what it says of a machine that is only described."""
import csv, io, json, os, random, resource, signal, time

from harness import TOP, cases, smoke, threads

SOURCE = "made up for a test"


def figure(value, unit):
    return {"value": value, "unit": unit, "source": SOURCE}


def profile(t, name="machine.json", gpu=True, price=None, **change):
    """A flat profile; change: {"disk.read": figure or None}."""
    p = {"name": "a machine", "host": {"mem": figure(64, "GiB"), "cores": figure(8, "cores"), "read": figure(40, "GB/s"), "flops": figure(0.8, "TFLOP/s")},
         "disk": {"space": figure(500, "GB"), "read": figure(2, "GB/s"), "write": figure(1, "GB/s")}}
    if gpu:
        p["gpu"] = {"name": "a GPU", "sm": figure(75, "sm"), "mem": figure(12, "GiB"), "read": figure(250, "GB/s"), "flops": figure(20, "TFLOP/s")}
        p["links"] = {"h2d": figure(12, "GB/s"), "d2h": figure(11, "GB/s")}
    if price:
        p["price"] = figure(price, "USD/h")
    for path, v in change.items():
        section, key = path.split(".")
        p[section][key] = v
    return t.write(name, json.dumps(p))


def config(name):
    return os.path.join(TOP, "configs", "models", name + ".json")


JOB = ["--prompt-len", "100", "--gen-len", "20", "--requests", "60"]


def plan(t, *args, model="opt-1.3b", hardware=None, **how):
    return t.run("plan", config(model), "--hardware", hardware or profile(t), *JOB, *args, **how)


def plan_json(t, *args, **how):
    return json.loads(plan(t, "--json", *args, **how).out)


@smoke
@cases(gpu=True, cpu=False)
def test_figures(t, gpu):
    """The figures agree with each other, and with what was asked for."""
    a = plan_json(t, "--top", "4", hardware=profile(t, gpu=gpu, price=0.5))
    t.check(a["job"] == {"requests": 60, "prompt_tokens": 6000, "generated_tokens": 1200}, f"job {a['job']}")
    t.check(1 <= len(a["plans"]) <= 4, f"{len(a['plans'])} plans")
    totals = [p["total_s"] for p in a["plans"]]
    t.check(totals == sorted(totals), f"not in order: {totals}")
    for p in a["plans"]:
        t.check(abs(p["tokens_per_s"] * p["total_s"] - 1200) < 1e-6 * 1200, "rate and time do not agree")
        t.check(abs(p["prefill_s"] + p["decode_s"] - p["total_s"]) < 1e-6 * p["total_s"], "prompts and generation are not all")
        t.check(0 < p["first_token_s"] < p["latency_s"], f"first token after {p['first_token_s']} s of {p['latency_s']}")
        t.check(p["first_token_s"] < p["latency_p95_s"] <= p["total_s"] * 1.000001, f"19 of 20 take {p['latency_p95_s']} s of {p['total_s']}")
        t.check(abs(p["tokens_per_usd"] - p["tokens_per_s"] * 3600 / 0.5) < 1e-6 * p["tokens_per_usd"], "price")
        t.check(p["host_bytes"] <= a["allowed"]["host_bytes"], "more host memory than allowed")
        for what in ("weights", "kv", "hidden"):
            parts = [p[f"{what}_{tier}"] or 0 for tier in ("gpu", "host", "disk")]
            t.check(abs(sum(parts) - 100) < 1e-6, f"{what} adds up to {sum(parts)}")
        busy = {k: v for k, v in p.items() if k.endswith("_busy") and k != "limit_busy" and v is not None}
        t.check(all(0 <= v <= 100 for v in busy.values()) and max(busy.values()) == p["limit_busy"], f"busy {busy}")
        if gpu:
            t.check(p["gpu_bytes"] <= a["allowed"]["gpu_bytes"], "more of the GPU than allowed")
        else:
            t.check(p["gpu_bytes"] is None and p["h2d_bytes_per_token"] is None, "a GPU's figures without one")
    gains = {m["what"]: m["gain"] for m in a["more"]}
    t.check(("gpu.mem" in gains) == gpu and "disk.read" in gains and "host.flops" in gains, f"more of {list(gains)}")
    t.check(all(g >= -0.01 for g in gains.values()), f"more is slower: {gains}")
    t.check(a["hardware"]["measured"] is False and a["outside"] is None, "measured, outside")


def test_rotary(t):
    """Positions in the cache are for models that rotate: these can be planned for."""
    a = plan_json(t, "--kv-policy", "sink", "--kv-positions", "cache", "--top", "1", model="llama-7b")
    t.check(a["plans"][0]["tokens_per_s"] > 0, f"{a}")


def test_latency(t):
    """All at once: as long as the job; a few prompts a sweep: those that are admitted late end sooner after it."""
    shape = ["--gpu-batch-size", "60", "--num-gpu-batches", "1", "--top", "1"]
    at_once = plan_json(t, *shape, "--prefill-tokens", "6000")["plans"][0]
    t.near(at_once["latency_s"] / at_once["total_s"], 1, 1e-6, "all at once")
    slowly = plan_json(t, *shape, "--prefill-tokens", "100")["plans"][0]
    t.check(0.1 < slowly["latency_s"] / slowly["total_s"] < 0.6, f"20 of 79 sweeps: {slowly['latency_s']} s of {slowly['total_s']}")


def test_text(t):
    """The table says the same as the JSON."""
    h = profile(t)
    a = plan_json(t, "--top", "2", hardware=h)
    r = plan(t, "--top", "2", hardware=h)
    for words in (f"{a['plans'][0]['tokens_per_s']:.0f}", "GPU memory", "limited by", "10 % faster: disk reads", "1 GiB of host memory", "not measured", "as options:\n" + a["plans"][0]["options"]):
        t.check(words in r.out, f"{words!r} is not in\n{r.out}")
    t.check("noisy" not in r.out, "nothing was noisy")
    r = plan(t, hardware=profile(t, "noisy.json", **{"disk.read": {**figure(2, "GB/s"), "noisy": True}}))
    t.check("figures were noisy" in r.out, f"something was noisy:\n{r.out}")


def test_options_count(t):
    """What is fixed by an option is so in every plan."""
    a = plan_json(t, "--gpu-batch-size", "5", "--num-gpu-batches", "3", "--prefill-tokens", "700", "--prefetch", "2", "--kv", "gpu:0,host:100,disk:0",
                  "--weights", "gpu:20,host:60,disk:20", "--attention", "host", "--kv-policy", "h2o", "--kv-budget", "25%", "--host-mem", "20G", "--gpu-mem", "4G")
    t.check(a["kv"]["policy"] == "h2o" and a["allowed"]["host_bytes"] == 20 << 30 and a["allowed"]["gpu_bytes"] == 4 << 30, "policy, memory")
    for p in a["plans"]:
        t.check((p["gpu_batch_size"], p["num_gpu_batches"], p["prefill_tokens"], p["prefetch"], p["kv_entries"]) == (5, 3, 700, 2, 30), f"{p}")
        t.check(p["kv_host"] == 100 and p["attention_host"] == 100 and abs(p["weights_gpu"] - 20) < 2, f"{p}")


PLACED = ("gpu_batch_size", "num_gpu_batches", "prefill_tokens", "prefetch", "kv_entries", "weights_gpu", "weights_host", "weights_disk",
          "kv_gpu", "kv_host", "kv_disk", "hidden_gpu", "hidden_host", "hidden_disk", "disk_bytes")


@threads
@cases(**{str(i): i for i in range(6)})
def test_given_back(t, seed):
    """A plan's own options bring its shape and placement, also where no more memory is allowed than it takes."""
    r = random.Random(seed)
    h = profile(t, gpu=seed % 3 != 0)
    how = ["--host-mem", f"{r.randrange(300, 6000)}M", "--gpu-mem", f"{r.randrange(500, 5000)}M", "--disk-space", f"{r.randrange(0, 20)}G",
           "--kv-policy", r.choice(("full", "h2o", "local"))]
    if seed == 0:
        how += ["--host-mem", "30G"]            # all resident
    model = r.choice(("opt-125m", "opt-350m", "opt-1.3b"))
    for p in plan_json(t, *how, "--top", "4", model=model, hardware=h)["plans"]:
        for more in ([], ["--host-mem", p["host_bytes"], "--disk-space", p["disk_bytes"], *(["--gpu-mem", p["gpu_bytes"]] if p["gpu_bytes"] else [])]):
            q = plan_json(t, *how, *p["options"].split(), *more, "--top", "1", model=model, hardware=h)["plans"][0]
            t.eq({k: q[k] for k in PLACED}, {k: p[k] for k in PLACED}, f"the plan of {p['options']} {more}")


def test_names(t):
    """What is not UTF-8 has a text in JSON all the same."""
    with open(config("opt-125m")) as f:
        shape = json.load(f)
    shape.pop("_name_or_path", None)                            # it goes by its file's name then, in which a byte is no UTF-8
    name = t.write("mod\udce8le.json", json.dumps(shape))
    h = profile(t)
    r = t.run("plan", name, "--hardware", h, *JOB, "--json")
    t.eq(json.loads(r.out)["model"]["name"], "mod\ufffdle", "the model's name")
    r = t.run("plan", name, "--hardware", h, *JOB, "--sweep", "kv-budget=10%", "--format", "json")
    got = json.loads(r.out)
    t.check(got["model"] == "mod\ufffdle" and "mod\ufffdle.json" in got["command"], f"{got['model']}, {got['command']}")
    t.run("bench", name, "--hardware", h, "--requests", "3", "-o", "b.json")
    t.eq(json.loads(t.read("b.json"))["model"]["name"], "mod\ufffdle", "the name in bench's JSON")


def test_dry_run(t):
    """What generate plans for this machine is what plan does, and --dry-run tells it as plan does."""
    env = {"XDG_CACHE_HOME": t.path("cache")}
    with open(config("opt-125m")) as f:
        shape = json.load(f)
    t.write("c.json", json.dumps({**shape, "hidden_size": 512, "word_embed_proj_dim": 512, "ffn_dim": 2048, "num_attention_heads": 8, "num_hidden_layers": 4}))
    t.run("convert", "--dummy", "c.json", "model")
    t.run("probe", "--quick", "--seconds", "1", "--threads", "2", "--host-mem", "256M", "--offload-dir", t.dir, "--disk-space", "64M", env=env)
    t.write("job.jsonl", "".join(json.dumps({"prompt": list(range(4, 30 + i)), "max_tokens": 9}) + "\n" for i in range(40)))
    how = ["--host-mem", "120M", "--disk-space", "1G", "--threads", "2", "--kv-policy", "h2o"]
    a = t.run("generate", "model", "job.jsonl", "-o", "out.jsonl", *how, "--dry-run", env=env).out
    b = t.run("plan", "model", "--hardware", "this", "--job", "job.jsonl", "--top", "1", *how, env=env).out
    a, b = a[a.index("tokens/s"):], b[b.index("tokens/s"):]
    a, b = ([x for x in text.splitlines() if x] for text in (a, b))
    t.eq(a, b[:len(a)], "what the two say of the plan")
    t.check(any("10 % faster: disk reads" in x for x in a) and any("1 GiB of host memory" in x for x in a) and any("limited by" in x for x in a), f"{a}")
    t.check(not os.path.exists(t.path("out.jsonl")), "a dry run wrote results")
    p = json.loads(t.run("plan", "model", "--hardware", "this", "--job", "job.jsonl", "--top", "1", "--json", *how, env=env).out)["plans"][0]
    t.run("generate", "model", "job.jsonl", "-o", "out.jsonl", *how, *p["options"].split(), "--dry-run", "--report", "r.json", env=env)
    got = json.loads(t.read("r.json"))["plan"]
    t.eq([got[k] for k in PLACED[:4]], [p[k] for k in PLACED[:4]], "generate's shape with plan's options")


def test_help(t):
    """Defaults are plan's, not generate's."""
    out = " ".join(t.run("plan", "--help").out.split())
    for words in ("most host memory (default 80 % of what the hardware has)", "all of the hardware's, less 5 %", "where a quick probe measures the disk"):
        t.check(words in out, f"{words!r} is not in --help")
    t.check("OUTPUT" not in out and "available" not in out, "generate's defaults")
    t.check("80 % of what is available" in " ".join(t.run("generate", "--help").out.split()), "generate's own")


def test_job(t):
    """A file of requests: its own lengths, token ids where there is no tokenizer."""
    t.write("ids.jsonl", "".join(json.dumps({"prompt": list(range(4, 14 + 3 * i)), "max_tokens": 5 + i}) + "\n" for i in range(30)))
    h = profile(t, gpu=False)
    a = json.loads(t.run("plan", config("opt-125m"), "--hardware", h, "--job", "ids.jsonl", "--json").out)
    want = {"requests": 30, "prompt_tokens": sum(10 + 3 * i for i in range(30)), "generated_tokens": sum(5 + i for i in range(30))}
    t.check(a["job"] == want, f"{a['job']}, {want} is what it asks for")
    t.write("text.jsonl", '{"prompt": "in words"}\n')
    r = t.run("plan", config("opt-125m"), "--hardware", h, "--job", "text.jsonl", rc=1).says("token ids", "text.jsonl", "no valid request")
    t.eq(r.err.count("no tokenizer files"), 1, "the fault is told once")
    t.write("mixed.jsonl", '{"prompt": "in words"}\n{"prompt": [5, 6, 7]}\n')
    r = t.run("plan", config("opt-125m"), "--hardware", h, "--job", "mixed.jsonl", "--json")
    r.says("1 of 2 lines in error", "token ids")
    t.eq(r.err.count("no tokenizer files"), 1, "the fault is told once")
    t.check(json.loads(r.out)["job"]["requests"] == 1, "the line in error counts")
    m = t.model("pre-f16")
    a = json.loads(t.run("plan", m, "--hardware", h, "--job", "ids.jsonl", "--limit", "3", "--json").out)
    t.check(a["job"]["requests"] == 3, "--limit")
    t.run("plan", m, "--hardware", h, "--dtype", "f32", rc=2).says("--dtype f32", "packed with weights of f16")


def test_does_not_fit(t):
    """Exit 4 with the table of what it takes."""
    plan(t, "--host-mem", "10M", rc=4, model="opt-6.7b").says("--host-mem", "KV", "It fits with")
    plan(t, "--gpu-mem", "20M", "--weights", "gpu:100", rc=4).says("--gpu-mem")


def test_no_disk(t):
    """What is not known of a disk is not taken to cost nothing: weights, KV and hidden states lie elsewhere, or nothing fits."""
    none = {"disk.read": None, "disk.write": None}
    for gpu in (False, True):
        h = profile(t, gpu=gpu, **none)
        for args in ([], ["--disk-space", "100G"], ["--host-mem", "6G"]):
            for p in plan_json(t, *args, hardware=h)["plans"]:
                t.eq((p["weights_disk"], p["kv_disk"], p["hidden_disk"], p["disk_read_bytes_per_token"]), (0, 0, 0, 0), f"on disk: {args}")
        plan(t, "--host-mem", "6G", "--gpu-mem", "1G", model="opt-6.7b", hardware=h, rc=4).says("no plan fits --host-mem")
        plan(t, "--weights", "disk:100", hardware=h, rc=4).says("the disk, of which no rates are known")
    for size, said in (("1K", "1K"), ("1000", "1000"), ("0", "0M"), ("1100K", "1M")):
        plan(t, "--host-mem", size, hardware=profile(t, gpu=False), rc=4).says(f"no plan fits --host-mem {said}; the smallest needs")
    split = plan_json(t, "--host-mem", "8G", model="opt-6.7b", hardware=profile(t, **none))["plans"][0]
    t.check(split["weights_gpu"] > 30 and split["weights_host"] > 10 and not split["weights_disk"], f"weights between host and GPU: {split}")


BAD = {
    "no hardware file": (["--hardware", "nowhere.json"], "--hardware: nowhere.json", 1),
    "prompt-len": (["--prompt-len", "0"], "--prompt-len 0: a whole number from 1", 2),
    "gen-len": (["--gen-len", "x"], "--gen-len x", 2),
    "requests": (["--requests", "1.5"], "--requests 1.5", 2),
    "too long": (["--prompt-len", "2040", "--gen-len", "20"], "positions", 2),
    "top": (["--top", "9"], "--top 9: a whole number from 1 to 8", 2),
    "dtype": (["--dtype", "f12"], "--dtype f12: f16 or bf16 or f32", 2),
    "host-mem": (["--host-mem", "lots"], "--host-mem lots: a size", 2),
    "kv-policy": (["--kv-policy", "magic"], "--kv-policy magic", 2),
    "kv-budget": (["--kv-budget", "-3"], "--kv-budget -3", 2),
    "text": (["--text"], "--job", 2),
    "job": (["--job", "nowhere.jsonl"], "nowhere.jsonl", 1),
    "output": (["-o", "x.csv"], "sweep", 2),
    "format": (["--format", "csv"], "sweep", 2),
    "max-tokens": (["--max-tokens", "-1"], "--max-tokens -1", 2),
    "limit": (["--limit", "some"], "--limit some", 2),
    "prefetch": (["--prefetch", "-1"], "--prefetch -1: a whole number from 0", 2),
    "slots": (["--gpu-batch-size", "65537"], "--gpu-batch-size 65537, --num-gpu-batches 0 (0: automatic): at most 65536", 2),
    "learned positions": (["--kv-positions", "cache"], "opt-1.3b has learned positions", 2),
}


def test_output_is_read(t):
    """A table does not replace what it was made from."""
    h = profile(t)
    before = t.read("machine.json")
    plan(t, "--sweep", "kv-budget=10%", "-o", h, hardware=h, rc=2).says("-o", "is read, too")
    plan(t, "--sweep", "kv-budget=10%", "-o", "-", hardware=h, rc=2).says("-o: - is not stdout here")
    other = os.path.join(TOP, "configs", "hardware", "t4-gcp.json")
    plan(t, "--sweep", f"hardware={other},{h}", "-o", h, hardware=other, rc=2).says("-o", "is read, too")
    t.eq(t.read("machine.json"), before, "the profile")


@cases(**BAD)
def test_bad(t, case):
    args, words, rc = case
    hw = [] if "--hardware" in args else ["--hardware", profile(t)]
    r = t.run("plan", config("opt-1.3b"), *hw, *args, rc=rc)
    r.says(words)
    t.check(not r.out, "something was printed")


def test_bad_machine(t):
    """A share on a GPU, and attention there, where there is none."""
    h = profile(t, gpu=False)
    plan(t, "--weights", "gpu:50,host:50", hardware=h, rc=2).says("GPU", "--weights")
    plan(t, "--attention", "gpu", hardware=h, rc=2).says("--attention gpu")
    plan(t, "--attention", "gpu", "--gpu-mem", "0", rc=2).says("--attention gpu")
    plan(t, hardware=profile(t, "bad.json", **{"disk.read": figure(-2, "GB/s")}), rc=1).says("disk.read")
    t.run("plan", "nowhere", "--hardware", h, rc=1).says("nowhere")
    t.run("plan", "--hardware", h, rc=2).says("MODEL")


@cases(model=(["nowhere"], 1, ["nowhere"]), job=(["--job", "nowhere.jsonl"], 1, ["nowhere.jsonl"]), lines=(["--job", "text.jsonl"], 1, ["no valid request"]),
       lengths=(["--prompt-len", "2040"], 2, ["2048 positions"]), gpu=(["--attention", "gpu"], 2, ["--attention gpu"]), axis=(["--sweep", "nothing=1,2"], 2, ["--sweep nothing"]),
       value=(["--sweep", "disk.read=1GB/s,fast"], 2, ["--sweep disk.read"]), output=(["--sweep", "kv-budget=10%", "-o", "no/where.csv"], 1, ["no/where.csv"]))
def test_before_probe(t, case):
    """What is wrong is told before this machine is probed."""
    args, rc, words = case
    t.write("text.jsonl", '{"prompt": "in words"}\n')
    args = args if args[0] == "nowhere" else [config("opt-125m"), *args]
    r = t.run("plan", *args, rc=rc).says(*words)
    t.check("probe" not in r.err and not r.out, r.err)


# ---- sweeps

SWEEP = ["--sweep", "host-mem=1G:4G:x2", "--sweep", "kv-budget=10%,50%", "--kv-policy", "h2o"]


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


@threads
def test_sweep(t):
    """Every point in order, on stdout and in files of both kinds; as good as planned alone."""
    h = profile(t)
    r = rows(plan(t, *SWEEP, hardware=h).out)
    t.eq([(x["host-mem"], x["kv-budget"]) for x in r], [(m, b) for m in ("1G", "2G", "4G") for b in ("10%", "50%")], "points")
    t.check(all(float(x["tokens_per_s"]) > 0 and not x["reason"] for x in r), "a point without figures")
    plan(t, *SWEEP, "-o", "s.csv", hardware=h)
    t.eq(rows(t.read("s.csv").decode()), r, "the file's rows")
    plan(t, *SWEEP, "-o", "s.json", hardware=h)
    doc = json.loads(t.read("s.json"))
    t.check("--sweep" in doc["command"] and doc["model"] == "opt-1.3b", "model and command")
    t.eq([p["limit"] for p in doc["points"]], [x["limit"] for x in r], "limits in JSON")
    out = plan(t, *SWEEP, "--format", "json", hardware=h).out
    t.eq(json.loads(out)["points"], doc["points"], "stdout's points")
    a = plan_json(t, "--host-mem", "2G", "--kv-budget", "50%", "--kv-policy", "h2o", hardware=h)
    t.check(a["plans"][0]["total_s"] <= float(r[3]["total_s"]) * 1.02, "the sweep's plan is better than the plan alone")
    t.check(float(r[3]["total_s"]) <= a["plans"][0]["total_s"] * 1.02, "the plan alone is better than the sweep's")


def test_sweep_fields(t):
    """Fields of the profile, machines and lengths as axes; values with commas in them."""
    h, other = profile(t, gpu=False), profile(t, "other.json", gpu=False, **{"host.flops": figure(1.6, "TFLOP/s")})
    r = rows(plan(t, "--sweep", "host.flops=400GFLOP/s:1600GFLOP/s:x2", hardware=h).out)
    s = [float(x["total_s"]) for x in r]
    t.check(s[0] > s[1] > s[2], f"more arithmetic, no less time: {s}")
    os.makedirs(t.path("cache/penstock"))
    os.link(t.path("other.json"), t.path("cache/penstock/hardware.json"))
    plan(t, "--sweep", f"hardware={h},this", hardware=h, env={"XDG_CACHE_HOME": t.path("cache")}, rc=2).says("another machine's", "was not probed", "penstock probe")
    both = [float(x["total_s"]) for x in rows(plan(t, "--sweep", f"hardware={h},{other}", hardware=h).out)]
    t.near(both[1] / s[2], 1, 1e-9, "the other machine")
    for axes in (["host.flops=400GFLOP/s,1600GFLOP/s", f"hardware={other}"], [f"hardware={other}", "host.flops=400GFLOP/s,1600GFLOP/s"]):
        got = [float(x["total_s"]) for x in rows(plan(t, "--sweep", axes[0], "--sweep", axes[1], hardware=h).out)]
        t.near(got[0] / s[0], 1, 1e-9, f"a figure of the other machine: {axes}")
        t.near(got[1] / s[2], 1, 1e-9, f"a figure of the other machine: {axes}")
    few = [float(x["total_s"]) for x in rows(plan(t, "--sweep", "threads=4,8,16", hardware=h).out)]
    t.check(few[0] > 1.4 * few[1], f"half of the threads: {few}")
    t.near(few[2] / few[1], 1, 0.01, "more threads than cores")
    plan(t, "--sweep", "gen-len=5,6", "--sweep", "gen-len=7", hardware=h, rc=2).says("gen-len", "given twice")
    out = plan(t, "--sweep", "prefetch=1,9", hardware=h).out.splitlines()
    t.check(out[0].split(",").count("prefetch") == 1 and len(out[0].split(",")) == len(out[1].split(",")) and [x["prefetch"] for x in rows("\n".join(out))] == ["1", "9"],
            f"an axis that is a figure, too: {out}")
    got = json.loads(plan(t, "--sweep", "prefetch=1,9", "--format", "json", hardware=h).out)["points"]
    t.eq([x["prefetch"] for x in got], ["1", "9"], "the same in JSON")
    r = rows(plan(t, "--sweep", "weights=host:100;host:60,disk:40", "--sweep", "gen-len=5:15:+5", hardware=h).out)
    t.eq([x["weights"] for x in r], ["host:100"] * 3 + ["host:60,disk:40"] * 3, "shares")
    t.check([x["gen-len"] for x in r[:3]] == ["5", "10", "15"] and abs(float(r[3]["weights_disk"]) - 40) < 2, "lengths, shares")


def test_sweep_order(t):
    """A figure that hangs on another, both swept: the point is the same whichever --sweep stands first."""
    h = profile(t, gpu=False, **{"disk.read_beside_write": figure(1.8, "GB/s")})
    axes = "disk.read=1GB/s,4GB/s", "disk.read_beside_write=200MB/s,900MB/s"
    more = ["--kv", "disk:100", "--host-mem", "1G"]

    def points(a, b):
        r = rows(plan(t, *more, "--sweep", a, "--sweep", b, hardware=h).out)
        return {(x["disk.read"], x["disk.read_beside_write"]): x["total_s"] for x in r}

    a, b = points(*axes), points(*reversed(axes))
    t.eq(a, b, "the axes in both orders")
    t.check(len(set(a.values())) == 4, f"a figure that does not count: {a}")


@threads
def test_sweep_with_more(t):
    """A point with more is not slower than one with less, whatever the search finds for it alone; whichever stands first."""
    def totals(axis, *more):
        r = rows(t.run("plan", config("opt-30b"), "--hardware", os.path.join(TOP, "configs", "hardware", "t4-gcp.json"), "--requests", "10000", "--kv-policy", "h2o", "--kv-budget", "100%",
                       *more, "--sweep", axis).out)
        for x in r:
            t.check(float(x["host_bytes"]) <= int(x.get("host-mem", "80G")[:-1]) << 30, f"more memory than the point has: {x}")
        return [float(x["total_s"]) for x in r]

    for axis, more, most in (("host-mem=140G,200G", [], 1), ("disk.read=4GB/s,7GB/s", ["--host-mem", "80G"], 1.01)):
        name, values = axis.split("=")
        got = totals(axis, *more)
        t.check(got[1] <= got[0] * most, f"{axis}: {got}")
        t.eq(totals(name + "=" + ",".join(reversed(values.split(","))), *more), got[::-1], f"{axis}, the other way round")


def test_sweep_refused_points(t):
    """What does not fit, or cannot be, is a row with its reason."""
    r = rows(plan(t, "--sweep", "host-mem=10M,4G", hardware=profile(t, gpu=False)).out)
    t.check("--host-mem" in r[0]["reason"] and not r[0]["tokens_per_s"] and r[1]["tokens_per_s"] and not r[1]["reason"], f"{r}")
    r = rows(plan(t, "--sweep", "prompt-len=100,5000", hardware=profile(t)).out)
    t.check("positions" in r[1]["reason"] and not r[0]["reason"], f"{r}")


def test_sweep_of_the_disk(t):
    """One rate of a disk that is not known is not enough to plan for it."""
    h = profile(t, gpu=False, **{"disk.read": None, "disk.write": None})
    for axis in ("disk.read=1GB/s,2GB/s", "disk.space=10GB,20GB"):
        plan(t, "--sweep", axis, hardware=h, rc=2).says("--sweep disk.", "both disk.read and disk.write")
    r = rows(plan(t, "--sweep", "disk.read=1GB/s,2GB/s", "--sweep", "disk.write=1GB/s", "--host-mem", "2G", "--disk-space", "100G", hardware=h).out)
    t.check(float(r[0]["total_s"]) > float(r[1]["total_s"]) and float(r[0]["weights_disk"]) > 0, f"{r}")


def test_room_not_said(t):
    """A disk of known rates whose room is not: told; not if an option says it."""
    p = json.loads(t.read(profile(t, gpu=False)))
    del p["disk"]["space"]
    h = t.write("m.json", json.dumps(p))
    note = plan_json(t, hardware=h)["note"]
    t.check("disk.space" in note and "--disk-space" in note, f"{note}")
    t.check(note in plan(t, hardware=h).out, "the note is not in the text")
    t.check(plan_json(t, "--disk-space", "10G", hardware=h)["note"] is None and plan_json(t)["note"] is None, "a note for nothing")


def test_little_address_space(t):
    """Planning for a machine with more memory than this process may have."""
    if t.shared.slow_by > 1:
        t.skip("sanitizers need address space")
    few = lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    plan(t, "--host-mem", "60G", "--top", "1", model="opt-30b", preexec_fn=few).says()


BAD_SWEEPS = {
    "no name": ("32G:64G:x2", "NAME=VALUES"), "no values": ("host-mem=", "NAME=VALUES"), "unknown": ("colour=red", "colour"),
    "falling": ("host-mem=64G:32G:x2", "a range as"), "no factor": ("host-mem=1G:2G:x1", "a range as"), "no step": ("prompt-len=1:9:+0", "a range as"),
    "two units": ("host-mem=512M:2G:x2", "a range as"), "two parts": ("host-mem=1G:2G", "--host-mem 1G:2G: a size"), "empty": ("kv-budget=10%,,20%", "empty"),
    "bad value": ("kv-budget=10%,many", "--kv-budget many"), "no unit": ("disk.read=3", "with its unit"), "wrong unit": ("disk.read=3GB", "with its unit"),
    "no GPU": ("gpu.read=100GB/s", "no GPU"), "no way to a GPU": ("links.h2d=10GB/s", "no GPU"), "of a run": ("queue-depth=1,64", "no plan depends on it"), "not to vary": ("dtype=f16,f32", "dtype"), "no file": ("hardware=nowhere.json", "nowhere.json"), "too many": ("requests=1:1000000:+1", "at most 100000 points"),
    "with --job": ("gen-len=1:3:+1", "--job"), "absurd": ("disk.read=1B/s", "from 1000"),
    "half a core": ("host.cores=1.5", "a whole number from 1 to 4096"), "hexadecimal": ("host.mem=0x10G", "with its unit"),
}


def left(t):
    return [x for x in os.listdir(t.path(".")) if x.startswith("out.csv")]


@cases(**BAD_SWEEPS)
def test_bad_sweep(t, case):
    arg, words = case
    t.write("ids.jsonl", '{"prompt": [5, 6]}\n')
    job = ["--job", "ids.jsonl"] if words == "--job" else []
    r = t.run("plan", config("opt-125m"), "--hardware", profile(t, gpu=False), *job, "--sweep", arg, "-o", "out.csv", rc=(1, 2))
    r.says("--sweep", words)
    t.check(not r.out and not left(t), "something was written")


def test_sweep_interrupted(t):
    """Ctrl-C leaves no file."""
    t.write("out.csv", "what was there")
    p = t.start("plan", config("opt-30b"), "--hardware", profile(t), "--requests", "400", "--sweep", "host-mem=8G:64G:+0.1", "-o", "out.csv")
    time.sleep(0.5)
    p.send_signal(signal.SIGINT)
    r = t.finish(p)
    t.check(r.rc == 130, f"exit {r.rc}: {r.err}")
    t.check(t.read("out.csv") == b"what was there" and left(t) == ["out.csv"], "a file of an interrupted sweep")
    p = t.run("plan", config("opt-125m"), "--hardware", profile(t), *JOB, "--sweep", "gen-len=1:2:+1", "-o", "no/folder/out.csv", rc=1)
    p.says("no/folder/out.csv")
    p = t.run("plan", config("opt-125m"), "--hardware", profile(t), *JOB, "--sweep", "gen-len=1:2:+1", "-o", t.dir, rc=2)
    p.says("-o", "no regular file")
