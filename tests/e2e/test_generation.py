# SPDX-License-Identifier: Apache-2.0
"""How a sequence ends, what is sampled, log-probabilities, the output record."""
import json, math, os, time

from harness import cases, choices, smoke

PROMPT = "The old house stood at the end of the street, and"


def base(t, n=24, **kw):
    """A sampled continuation with its tokens' texts."""
    return t.one(t.model("demo-opt"), dict(prompt=PROMPT, max_tokens=n, temperature=0.8, seed=3, logprobs=0, return_token_ids=True, **kw))


@smoke
def test_stop_string(t):
    """A stop string that straddles tokens: text is cut before it, token_ids are not."""
    b = base(t)
    toks, text = b["logprobs"]["tokens"], b["text"]
    t.eq("".join(toks), text, "the tokens' texts")
    done = 0
    for i in range(2, len(toks) - 1):
        stop = toks[i][-2:] + toks[i + 1][:2]
        if "\ufffd" in stop or len(stop) < 3:
            continue
        at = text.find(stop)
        end, used = 0, 0
        while end < at + len(stop):
            end += len(toks[used])
            used += 1
        got = t.one(t.model("demo-opt"), dict(prompt=PROMPT, max_tokens=24, temperature=0.8, seed=3, logprobs=0, return_token_ids=True, stop=["qqqq", stop]))
        t.eq(got["text"], text[:at], f"text before {stop!r}")
        t.eq(got["token_ids"], b["token_ids"][:used], "token ids")
        t.eq(got["finish_reason"], "stop", "finish_reason")
        done += 1
        if done == 6:
            break
    t.check(done >= 3, "too few stop strings tried")


def test_stop_string_earliest(t):
    """Of several stop strings the one that begins first counts; one that never comes changes nothing."""
    b = base(t)
    text = b["text"]
    first, later = text[6:9], text[14:17]
    got = t.one(t.model("demo-opt"), dict(prompt=PROMPT, max_tokens=24, temperature=0.8, seed=3, stop=[later, first]))
    t.eq(got["text"], text[:min(text.find(first), text.find(later))], "text")
    got = t.one(t.model("demo-opt"), dict(prompt=PROMPT, max_tokens=24, temperature=0.8, seed=3, stop=["never seen"], return_token_ids=True))
    t.eq((got["text"], got["token_ids"], got["finish_reason"]), (text, b["token_ids"], "length"), "a stop string that never comes")


def test_min_tokens(t):
    b = base(t)
    stop = b["text"][1:3]
    for n in (1, 5, 12):
        got = t.one(t.model("demo-opt"), dict(prompt=PROMPT, max_tokens=24, temperature=0.8, seed=3, stop=stop, min_tokens=n, return_token_ids=True))
        t.check(len(got["token_ids"]) >= n, f"min_tokens {n}: {len(got['token_ids'])} tokens")
        t.eq(got["token_ids"], b["token_ids"][:len(got["token_ids"])], "the same tokens")
    k = b["token_ids"][2]
    got = t.one(t.model("demo-opt"), dict(prompt=PROMPT, max_tokens=24, temperature=0.8, seed=3, stop_token_ids=[k], min_tokens=10, return_token_ids=True))
    t.check(len(got["token_ids"]) >= 10 and k not in got["token_ids"][:10], f"a stop token before min_tokens: {got['token_ids']}")


def test_stop_token(t):
    b = base(t)
    for i in (0, 3, 9):
        k = b["token_ids"][i]
        at = b["token_ids"].index(k)
        r = t.generate(t.model("demo-opt"), [dict(prompt=PROMPT, max_tokens=24, temperature=0.8, seed=3, stop_token_ids=[4000, k], return_token_ids=True)])["r0"]
        c = r["response"]["body"]["choices"][0]
        t.eq(c["token_ids"], b["token_ids"][:at + 1], "token ids end with the stop token")
        t.eq(c["text"], "".join(b["logprobs"]["tokens"][:at]), "text is without it")
        t.eq((c["finish_reason"], r["response"]["body"]["usage"]["completion_tokens"]), ("stop", at + 1), "reason and count")


def test_eos(t):
    """EOS ends a sequence, unless ignore_eos or min_tokens say otherwise."""
    m = t.model("d80-f16")
    make = lambda **kw: [(f"e{i}", dict(prompt=[2, 3 + i % 90], max_tokens=60, temperature=2.5, seed=i, return_token_ids=True, **kw)) for i in range(60)]
    r, ign = t.generate(m, make()), t.generate(m, make(ignore_eos=True))
    late = t.generate(m, make(min_tokens=30))
    ended = 0
    for k in r:
        a, b, c = (x[k]["response"]["body"]["choices"][0] for x in (r, ign, late))
        t.eq(len(b["token_ids"]), 60, "ignore_eos goes on to max_tokens")
        t.check(2 not in c["token_ids"][:30], "EOS before min_tokens")
        if 2 in b["token_ids"]:
            at = b["token_ids"].index(2)
            t.eq((a["token_ids"], a["finish_reason"]), (b["token_ids"][:at + 1], "stop"), "ends with EOS")
            ended += 1
        else:
            t.eq((a["token_ids"], a["finish_reason"]), (b["token_ids"], "length"), "no EOS")
    t.check(ended >= 5, f"only {ended} sequences met EOS")


def test_greedy_forms(t):
    """temperature 0, top_k 1 and a tiny top_p choose the same tokens."""
    m, p = t.model("demo-opt"), dict(prompt=PROMPT, max_tokens=20, return_token_ids=True)
    want = t.one(m, p)["token_ids"]
    for kw in (dict(temperature=0), dict(temperature=0, top_p=0.5, top_k=7, seed=9), dict(temperature=1, top_k=1, seed=5), dict(temperature=1, top_p=1e-6, seed=6)):
        t.eq(t.one(m, {**p, **kw})["token_ids"], want, str(kw))


def test_off_values(t):
    m, p = t.model("demo-opt"), dict(prompt=PROMPT, max_tokens=20, temperature=1.1, seed=8, return_token_ids=True)
    want = t.one(m, p)["token_ids"]
    for kw in (dict(top_k=0), dict(top_k=-1), dict(top_k=4096), dict(top_k=10 ** 6), dict(top_p=1), dict(top_p=1.0)):
        t.eq(t.one(m, {**p, **kw})["token_ids"], want, str(kw))


def test_seed_and_id(t):
    """Random numbers come from (seed, custom_id, index): nothing else."""
    m = t.model("demo-opt")
    b = dict(prompt=PROMPT, max_tokens=16, temperature=1.0, return_token_ids=True)
    a = t.generate(m, [("x", dict(b, seed=1)), ("y", dict(b, seed=1)), ("z", dict(b, seed=2))])
    ids = {k: tuple(r["response"]["body"]["choices"][0]["token_ids"]) for k, r in a.items()}
    t.eq(len(set(ids.values())), 3, "other ids and other seeds give other texts")
    again = t.generate(m, [("pad", b), ("z", dict(b, seed=2)), ("x", dict(b, seed=1))])
    for k in ("x", "z"):
        t.eq(tuple(again[k]["response"]["body"]["choices"][0]["token_ids"]), ids[k], "the same again elsewhere")
    d = t.generate(m, [("x", b)], "--seed", 1)
    t.eq(tuple(d["x"]["response"]["body"]["choices"][0]["token_ids"]), ids["x"], "--seed")


@cases(plain={}, top_k=dict(top_k=3), top_p=dict(top_p=0.6), hot=dict(temperature=1.7), both=dict(top_k=5, top_p=0.8, temperature=1.2))
def test_distribution(t, kw):
    """What is drawn has the probabilities that the log-probabilities say, after temperature, then top_k, then top_p."""
    m, n = t.model("demo-opt"), 600
    first = t.one(m, dict(prompt=PROMPT, max_tokens=1, logprobs=20, return_tokens_as_token_ids=True))["logprobs"]["top_logprobs"][0]
    best = sorted(((v, int(k.split(":")[1])) for k, v in first.items()), reverse=True)
    temp = kw.get("temperature", 1.0)
    drawn = t.generate(m, [(f"d{i}", dict(prompt=PROMPT, max_tokens=1, seed=11, return_token_ids=True, **{"temperature": temp, **kw})) for i in range(n)])
    count = {}
    for r in drawn.values():
        k = r["response"]["body"]["choices"][0]["token_ids"][0]
        count[k] = count.get(k, 0) + 1
    if not ("top_k" in kw or "top_p" in kw) and temp != 1.0:
        # Without the whole distribution only ratios between two tokens are known.
        (va, a), (vb, b) = best[0], best[1]
        pa = 1 / (1 + math.exp((vb - va) / temp))
        na, nb = count.get(a, 0), count.get(b, 0)
        t.near(na / max(1, na + nb), pa, 4.5 * math.sqrt(pa * (1 - pa) / max(1, na + nb)), "the first against the second")
        return
    w = [(math.exp((v - best[0][0]) / temp) if "top_k" in kw else math.exp(v), k) for v, k in best]
    if "top_k" in kw:
        w = w[:kw["top_k"]]
        s = sum(x for x, _ in w)
        w = [(x / s, k) for x, k in w]
    if "top_p" in kw:
        kept, acc = [], 0.0
        for x, k in w:
            if acc >= kw["top_p"]:
                break
            kept.append((x, k))
            acc += x
        if acc < kw["top_p"]:
            t.skip("the 20 best do not reach top_p")
        w = [(x / acc, k) for x, k in kept]
    if "top_k" in kw or "top_p" in kw:
        t.check(set(count) <= {k for _, k in w}, f"a token outside: {set(count) - {k for _, k in w}}")
    for p, k in w:
        t.near(count.get(k, 0) / n, p, 4.5 * math.sqrt(p * (1 - p) / n) + 1e-9, f"token {k}")


@smoke
@cases(plain=dict(), echo=dict(echo=True))
def test_logprobs(t, kw):
    body = dict(prompt=PROMPT, max_tokens=12, temperature=0.9, seed=4, return_token_ids=True, **kw)
    ask = {**{f"n{k}": dict(logprobs=k) for k in (0, 1, 5, 20)}, "ids": dict(logprobs=5, return_tokens_as_token_ids=True)}
    # A job each, for what is drawn depends on the custom_id.
    r = {name: t.generate(t.model("demo-opt"), [("same", {**body, **more})])["same"] for name, more in ask.items()}
    prompt_ids = r["n0"]["response"]["body"]["choices"][0]["prompt_token_ids"]
    t.eq(prompt_ids[0], 2, "</s> in front")
    skip = len(prompt_ids) if kw else 0
    seen = set()
    for name, x in r.items():
        c = x["response"]["body"]["choices"][0]
        lp, k = c["logprobs"], 5 if name == "ids" else int(name[1:])
        for f in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            t.eq(len(lp[f]), skip + len(c["token_ids"]), f"{name}: {f}")
        if kw:
            t.eq(lp["token_logprobs"][0], None, "the first token's log-probability")
            t.check(c["text"].startswith(PROMPT), f"echo: {c['text'][:60]!r}")
            t.eq(lp["tokens"][0], "token_id:2" if name == "ids" else "</s>", "the first token")
        seen.add((c["text"], tuple(c["token_ids"])))
        t.check(lp["text_offset"] == sorted(lp["text_offset"]), "text_offset goes up")
        for i in range(skip, skip + len(c["token_ids"])):
            tok, top, v = lp["tokens"][i], lp["top_logprobs"][i], lp["token_logprobs"][i]
            t.check(tok in top and top[tok] == v, f"{name}: the chosen token among the best")
            t.check(k <= len(top) <= k + 1 if name == "ids" else len(top) <= k + 1, f"{name}: {len(top)} best")
            vals = list(top.values())
            t.check(all(y <= 1e-6 for y in vals) and sum(map(math.exp, vals)) <= 1 + 1e-4, "probabilities")
            if name == "ids":
                t.eq(tok, f"token_id:{c['token_ids'][i - skip]}", "token ids as tokens")
            elif i > skip + 1:
                off = lp["text_offset"][i] - lp["text_offset"][skip] + (len(PROMPT) if kw else 0)
                t.eq(c["text"][off:off + len(tok)], tok, f"{name}: text at text_offset")
    t.eq(len(seen), 1, "logprobs change no text")
    a, b = (r[x]["response"]["body"]["choices"][0]["logprobs"]["token_logprobs"] for x in ("n0", "n20"))
    t.eq(a, b, "the same log-probabilities whatever N")


def test_no_logprobs_asked(t):
    t.eq(t.one(t.model("demo-opt"), dict(prompt=PROMPT, max_tokens=2)).get("logprobs"), None, "logprobs")


def test_score_equals_generate(t):
    """Scoring a text token by token gives what generating it gave."""
    m = t.model("demo-opt")
    g = t.one(m, dict(prompt=PROMPT, max_tokens=20, temperature=0.9, seed=2, logprobs=1, return_token_ids=True), "--kv-dtype", "f32")
    ids = g["prompt_token_ids"] + g["token_ids"]
    s = t.one(m, dict(prompt=ids, max_tokens=0, echo=True, logprobs=1), "--kv-dtype", "f32")
    t.eq(s["finish_reason"], "length", "finish_reason")
    for a, b in zip(g["logprobs"]["token_logprobs"], s["logprobs"]["token_logprobs"][len(g["prompt_token_ids"]):]):
        t.near(a, b, 2e-4, "log-probability")


def test_score_in_any_policy(t):
    """Prompt logits come from dense attention under every policy."""
    body = dict(prompt=[2] + list(range(50, 130)), max_tokens=0, echo=True, logprobs=3)
    m = t.model("demo-opt")
    want = choices({"r0": dict(error=None, response=dict(body=dict(choices=[t.one(m, body)])))})
    for p in (["--kv-policy", "h2o", "--kv-budget", "5"], ["--kv-policy", "local", "--kv-budget", "3"], ["--prefill-tokens", "32"]):
        got = choices({"r0": dict(error=None, response=dict(body=dict(choices=[t.one(m, body, *p)])))})
        t.eq(got, want, " ".join(p))


@smoke
def test_record(t):
    before = int(time.time())
    r = t.generate(t.model("demo-opt"), [("first", dict(prompt=PROMPT, max_tokens=3, model="mine")), ("second", dict(prompt=[2, 600], max_tokens=2, return_token_ids=True))])
    after = int(time.time())
    for cid, x in r.items():
        t.eq(set(x), {"id", "custom_id", "response", "error"}, "a record's fields")
        t.eq((x["custom_id"], x["error"], x["response"]["status_code"]), (cid, None, 200), "record")
        b = x["response"]["body"]
        t.eq(b["object"], "text_completion", "object")
        t.check(before <= b["created"] <= after, f"created {b['created']}")
        t.check(isinstance(x["id"], str) and isinstance(b["id"], str) and isinstance(x["response"]["request_id"], str), "ids")
        c = b["choices"]
        t.eq((len(c), c[0]["index"], c[0]["finish_reason"]), (1, 0, "length"), "choice")
        t.eq(b["usage"]["total_tokens"], b["usage"]["prompt_tokens"] + b["usage"]["completion_tokens"], "usage")
    t.check(len({x["id"] for x in r.values()}) == 2, "ids differ")
    c = r["second"]["response"]["body"]["choices"][0]
    t.eq((c["prompt_token_ids"], len(c["token_ids"])), ([2, 600], 2), "token ids")
    t.eq(r["second"]["response"]["body"]["usage"], {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4}, "usage")


def test_text_is_utf8(t):
    """Bytes of an unfinished character become U+FFFD at the end; everything is valid UTF-8 (records() decodes strictly)."""
    r = t.generate(t.model("demo-opt"), [(f"u{i}", dict(prompt=[2] + [230, 132] * (i % 3 + 1), max_tokens=6, temperature=3.0, seed=i, logprobs=2)) for i in range(80)])
    for x in r.values():
        t.check(x["error"] is None, str(x["error"]))
        x["response"]["body"]["choices"][0]["text"].encode("utf-8")


def test_demo_nll(t):
    """The demo model's negative log-likelihood of sample.txt is right.json's."""
    d = t.hf("demo-opt")
    right = json.load(open(os.path.join(d, "right.json")))
    text = open(os.path.join(d, "sample.txt"), encoding="utf-8", newline="").read()
    for opts in ([], ["--weights", "disk:100", "--kv-policy", "h2o", "--kv-budget", "20%"]):
        c = t.one(t.model("demo-opt"), dict(prompt=text, max_tokens=0, echo=True, logprobs=0), *opts)
        lp = c["logprobs"]["token_logprobs"]
        t.eq(len(lp), right["tokens"], "tokens")
        nll = -sum(lp[1:]) / (len(lp) - 1)
        t.near(nll, right["nll"], right["nll"] * 1e-3, "mean NLL")
        t.eq(c["text"], text, "echo")


def test_demo_greedy(t):
    right = json.load(open(os.path.join(t.hf("demo-opt"), "right.json")))
    r = t.generate(t.model("demo-opt"), [dict(prompt=g["prompt"], max_tokens=len(g["greedy"]), ignore_eos=True, return_token_ids=True) for g in right["greedy"]],
                   "--kv-dtype", "f32")
    for i, g in enumerate(right["greedy"]):
        c = r[f"r{i}"]["response"]["body"]["choices"][0]
        t.eq((c["prompt_token_ids"], c["token_ids"]), (g["prompt_ids"], g["greedy"]), g["prompt"])
