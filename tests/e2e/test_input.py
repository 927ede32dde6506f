# SPDX-License-Identifier: Apache-2.0
"""What bad input gets: every line's error is its own record, the job goes on, nothing is cut silently."""
import json, os, re

from harness import TOP, cases, same, smoke

BIG = 1 << 64
ANY = ("invalid_request", "unsupported_value", "invalid_json", "unknown_field")

# name: (line, codes that may answer it, words its message must hold)
BAD = {
    "no json": ("hello", ("invalid_json",), ()),
    "half json": ('{"prompt": [2, 5]', ("invalid_json",), ()),
    "two values": ('{"prompt": [2, 5]} {"prompt": [2]}', ("invalid_json",), ()),
    "list": ("[1, 2]", ("invalid_json", "invalid_request"), ()),
    "string": ('"text"', ("invalid_json", "invalid_request"), ()),
    "null": ("null", ("invalid_json", "invalid_request"), ()),
    "unknown field": ({"prompt": [2], "bogus": 1}, ("unknown_field",), ("bogus",)),
    "chat body": ({"messages": [{"role": "user", "content": "hi"}]}, ("unknown_field", "unsupported_url", "invalid_request"), ("prompt",)),
    "no prompt": ({"max_tokens": 3}, ("invalid_request", "empty_prompt"), ("prompt",)),
    "prompt null": ({"prompt": None}, ("invalid_request", "empty_prompt"), ("prompt",)),
    "prompt number": ({"prompt": 5}, ("invalid_request",), ("prompt",)),
    "prompt of lists": ({"prompt": [[2, 3]]}, ("invalid_request", "unsupported_value"), ("prompt",)),
    "prompt of strings": ({"prompt": ["a", "b"]}, ("invalid_request", "unsupported_value"), ("prompt",)),
    "prompt float id": ({"prompt": [2, 5.0]}, ("invalid_request", "token_out_of_range"), ("prompt",)),
    "prompt bool id": ({"prompt": [2, True]}, ("invalid_request", "token_out_of_range"), ("prompt",)),
    "empty string": ({"prompt": ""}, ("empty_prompt",), ()),
    "empty list": ({"prompt": []}, ("empty_prompt",), ()),
    "id too high": ({"prompt": [2, 4096]}, ("token_out_of_range",), ("4096",)),
    "id negative": ({"prompt": [2, -1]}, ("token_out_of_range", "invalid_request"), ("-1",)),
    "id huge": ({"prompt": [2, BIG]}, ("token_out_of_range", "invalid_request", "invalid_json"), ()),
    "max_tokens 1.0": ({"prompt": [2], "max_tokens": 1.0}, ANY, ("max_tokens",)),
    "max_tokens true": ({"prompt": [2], "max_tokens": True}, ANY, ("max_tokens",)),
    "max_tokens text": ({"prompt": [2], "max_tokens": "5"}, ANY, ("max_tokens",)),
    "max_tokens 2^64": ({"prompt": [2], "max_tokens": BIG}, ANY + ("context_length_exceeded",), ()),
    "max_tokens -1": ({"prompt": [2], "max_tokens": -1}, ANY, ("max_tokens",)),
    "too long": ({"prompt": [2] * 100, "max_tokens": 2000}, ("context_length_exceeded",), ("2048",)),
    "one too long": ({"prompt": [2] * 1040, "max_tokens": 1009}, ("context_length_exceeded",), ("2048",)),
    "temperature -1": ({"prompt": [2], "temperature": -1}, ANY, ("temperature",)),
    "temperature text": ({"prompt": [2], "temperature": "hot"}, ANY, ("temperature",)),
    "top_p 0": ({"prompt": [2], "top_p": 0}, ANY, ("top_p",)),
    "top_p 1.5": ({"prompt": [2], "top_p": 1.5}, ANY, ("top_p",)),
    "top_k -2": ({"prompt": [2], "top_k": -2}, ANY, ("top_k",)),
    "top_k 1.5": ({"prompt": [2], "top_k": 1.5}, ANY, ("top_k",)),
    "seed text": ({"prompt": [2], "seed": "x"}, ANY, ("seed",)),
    "stop empty": ({"prompt": [2], "stop": ""}, ANY, ("stop",)),
    "stop empty in list": ({"prompt": [2], "stop": ["a", ""]}, ANY, ("stop",)),
    "stop five": ({"prompt": [2], "stop": ["a", "b", "c", "d", "e"]}, ANY, ("stop",)),
    "stop number": ({"prompt": [2], "stop": 7}, ANY, ("stop",)),
    "stop_token_ids text": ({"prompt": [2], "stop_token_ids": ["a"]}, ANY, ("stop_token_ids",)),
    "logprobs 21": ({"prompt": [2], "logprobs": 21}, ANY, ("logprobs",)),
    "logprobs -1": ({"prompt": [2], "logprobs": -1}, ANY, ("logprobs",)),
    "logprobs true": ({"prompt": [2], "logprobs": True}, ANY, ("logprobs",)),
    "echo text": ({"prompt": [2], "echo": "yes"}, ANY, ("echo",)),
    "ignore_eos 1": ({"prompt": [2], "ignore_eos": 1}, ANY, ("ignore_eos",)),
    "n 2": ({"prompt": [2], "n": 2}, ("unsupported_value",), ("n",)),
    "best_of 3": ({"prompt": [2], "best_of": 3}, ("unsupported_value",), ("best_of",)),
    "stream": ({"prompt": [2], "stream": True}, ("unsupported_value",), ("stream",)),
    "suffix": ({"prompt": [2], "suffix": "x"}, ("unsupported_value",), ("suffix",)),
    "logit_bias": ({"prompt": [2], "logit_bias": {"5": 1}}, ("unsupported_value",), ("logit_bias",)),
    "presence_penalty": ({"prompt": [2], "presence_penalty": 0.5}, ("unsupported_value",), ("presence_penalty",)),
    "frequency_penalty": ({"prompt": [2], "frequency_penalty": -1}, ("unsupported_value",), ("frequency_penalty",)),
    "not utf-8": (b'{"prompt": "a\xff\xfeb"}', ("invalid_json",), ()),
    "overlong utf-8": (b'{"prompt": "a\xc0\x80b"}', ("invalid_json",), ()),
    "lone surrogate": (r'{"prompt": "a\ud800b"}', ("invalid_json", "invalid_request"), ()),
    "surrogates swapped": (r'{"prompt": "\udc00\ud800"}', ("invalid_json", "invalid_request"), ()),
    "raw control": (b'{"prompt": "a\x01b"}', ("invalid_json",), ()),
    "field twice": ('{"prompt": [2], "prompt": [3]}', ("invalid_json", "invalid_request"), ()),
    "nested deep": ("[" * 200000, ("invalid_json", "invalid_request"), ()),
    "nested in a field": ('{"prompt": ' + "[" * 100000 + "]" * 100000 + "}", ("invalid_json", "invalid_request"), ()),
    "chat url": (dict(custom_id="c", method="POST", url="/v1/chat/completions", body={"messages": []}), ("unsupported_url",), ("/v1/completions",)),
    "other url": (dict(custom_id="c", method="POST", url="/v1/embeddings", body={"prompt": [2]}), ("unsupported_url",), ("/v1/completions",)),
    "method": (dict(custom_id="c", method="GET", url="/v1/completions", body={"prompt": [2]}), ANY, ("method",)),
    "no body": (dict(custom_id="c", method="POST", url="/v1/completions"), ANY, ("body",)),
    "body a list": (dict(custom_id="c", method="POST", url="/v1/completions", body=[]), ANY, ("body",)),
    "id a number": (dict(custom_id=5, method="POST", url="/v1/completions", body={"prompt": [2]}), ANY, ("custom_id",)),
    "envelope field": (dict(custom_id="c", method="POST", url="/v1/completions", body={"prompt": [2]}, extra=1), ("unknown_field",), ("extra",)),
}


def raw(line):
    return line if isinstance(line, bytes) else (line if isinstance(line, str) else json.dumps(line)).encode()


@smoke
def test_bad_lines(t):
    """All of them in one job, with good lines between."""
    good, lines = b'{"prompt": [2, 9, 17], "max_tokens": 2}', []
    for line, _, _ in BAD.values():
        lines += [raw(line), good]
    t.write("in.jsonl", b"\n".join(lines))
    t.run("generate", t.model("demo-opt"), "in.jsonl", "-o", "out.jsonl", rc=3)
    recs = [json.loads(x) for x in t.read("out.jsonl").decode("utf-8").splitlines()]
    t.eq(len(recs), len(lines), "records")
    wrong = []
    for i, (name, (line, codes, words)) in enumerate(BAD.items()):
        bad, ok = recs[2 * i], recs[2 * i + 1]
        t.check(ok["error"] is None and ok["response"]["status_code"] == 200, f"the good line after '{name}': {ok['error']}")
        e = bad["error"]
        if bad["response"] is not None or not e:
            wrong.append(f"{name}: no error")
        elif e["code"] not in codes:
            wrong.append(f"{name}: code {e['code']} ({e['message'][:120]}), wanted {codes}")
        elif e.get("line") != 2 * i + 1:
            wrong.append(f"{name}: line {e.get('line')}, is {2 * i + 1}")
        elif any(w not in e["message"] for w in words):
            wrong.append(f"{name}: {e['message'][:200]!r} does not say {words}")
    t.check(not wrong, "\n    ".join(["", *wrong]))


GOOD = {
    "nulls": {"prompt": [2, 5], "max_tokens": None, "temperature": None, "top_p": None, "top_k": None, "seed": None, "stop": None, "logprobs": None,
              "echo": None, "n": None, "suffix": None, "logit_bias": None, "stream": None, "user": None, "ignore_eos": None},
    "neutral": {"prompt": [2, 5], "n": 1, "best_of": 1, "presence_penalty": 0, "frequency_penalty": 0.0, "stream": False, "logit_bias": {}},
    "model and user": {"prompt": [2, 5], "model": "what I asked for", "user": "me"},
    "whole context": {"prompt": [2] * 2040, "max_tokens": 8},
    "top_k off": {"prompt": [2, 5], "top_k": -1, "temperature": 1},
    "top_k above": {"prompt": [2, 5], "top_k": 99999, "temperature": 1},
    "nul": {"prompt": "a\0b"},
    "astral": {"prompt": "a \U0001f600 b"},
    "four stops": {"prompt": [2, 5], "stop": ["a", "b", "c", "d"]},
    "stop text": {"prompt": [2, 5], "stop": "zzz"},
    "logprobs 20": {"prompt": [2, 5], "logprobs": 20, "max_tokens": 1},
    "score": {"prompt": [2, 5, 9], "logprobs": 0, "max_tokens": 0, "echo": True},
    "seed big": {"prompt": [2, 5], "seed": (1 << 63) - 1, "temperature": 1},
}


def test_good_lines(t):
    recs = t.generate(t.model("demo-opt"), [(k, b) for k, b in GOOD.items()])
    for k, r in recs.items():
        t.check(r["error"] is None, f"{k}: {r['error']}")
        body = r["response"]["body"]
        t.eq(body["usage"]["total_tokens"], body["usage"]["prompt_tokens"] + body["usage"]["completion_tokens"], "usage")
    t.eq(recs["model and user"]["response"]["body"].get("model"), "what I asked for", "model")
    t.eq(recs["nulls"]["response"]["body"]["usage"]["completion_tokens"], 16, "max_tokens' default")
    t.eq(recs["whole context"]["response"]["body"]["usage"]["prompt_tokens"], 2040, "prompt_tokens")


def test_duplicate_ids(t):
    job = [("a", {"prompt": [2, 5]}), ("b", {"prompt": [2, 6]}), ("a", {"prompt": [2, 7]}), ("a", {"prompt": [2, 8]})]
    t.run("generate", t.model("pre-f16"), t.job(job), "-o", "out.jsonl", rc=3)
    recs = [json.loads(x) for x in t.read("out.jsonl").splitlines()]
    t.eq([(r["custom_id"], (r["error"] or {}).get("code")) for r in recs],
         [("a", None), ("b", None), ("a", "duplicate_custom_id"), ("a", "duplicate_custom_id")], "records")


def test_line_ids_take_part(t):
    """A body alone is called line-N, N counting every line."""
    t.write("in.jsonl", b'{"prompt": [2, 5]}\n\n  \n{"prompt": [2, 6]}\n{"custom_id": "x", "method": "POST", "url": "/v1/completions", "body": {"prompt": [2, 7]}}\n')
    recs = t.generate(t.model("pre-f16"), t.path("in.jsonl"))
    t.eq(list(recs), ["line-1", "line-4", "x"], "custom ids")


def test_bom_crlf_no_newline(t):
    job = b'{"prompt": [2, 5], "max_tokens": 4}\n{"prompt": [2, 6, 7], "max_tokens": 4}\n'
    t.write("a.jsonl", job)
    t.write("b.jsonl", b"\xef\xbb\xbf" + job.replace(b"\n", b"\r\n"))
    t.write("c.jsonl", job.rstrip(b"\n"))
    want = t.generate(t.model("pre-f16"), t.path("a.jsonl"))
    same(t, t.generate(t.model("pre-f16"), t.path("b.jsonl")), want, "BOM and CRLF")
    same(t, t.generate(t.model("pre-f16"), t.path("c.jsonl")), want, "no last newline")


def test_text_input(t):
    """--text: one prompt a line; what JSON would mean is just text."""
    t.write("p.txt", "The old house\r\n\n{\"prompt\": 1}\nIt was")
    recs = t.generate(t.model("demo-opt"), t.path("p.txt"), "--text", "--max-tokens", "5", rc=3)
    t.eq(list(recs), ["line-1", "line-2", "line-3", "line-4"], "custom ids")
    t.eq(recs["line-2"]["error"]["code"], "empty_prompt", "a blank line")
    for k in ("line-1", "line-3", "line-4"):
        t.eq(recs[k]["response"]["body"]["usage"]["completion_tokens"], 5, "--max-tokens")
    j = t.generate(t.model("demo-opt"), [("line-1", {"prompt": "The old house", "max_tokens": 5})])
    same(t, {"line-1": recs["line-1"]}, j, "the same prompt in JSON")


def test_option_defaults(t):
    """Options stand in for fields that a line leaves out, and only for those."""
    m = t.model("demo-opt")
    r = t.generate(m, [{"prompt": "It was"}, {"prompt": "It was", "max_tokens": 3, "temperature": 0}], "--max-tokens", 9, "--temperature", 0.8, "--top-p", 0.9,
                   "--top-k", 50, "--seed", 4, "--stop", "zzz")
    t.eq([x["response"]["body"]["usage"]["completion_tokens"] for x in r.values()], [9, 3], "tokens")
    w = t.generate(m, [{"prompt": "It was", "max_tokens": 9, "temperature": 0.8, "top_p": 0.9, "top_k": 50, "seed": 4, "stop": ["zzz"]}, {"prompt": "It was", "max_tokens": 3}])
    same(t, r, w, "fields in the line")


def test_limit(t):
    r = t.generate(t.model("pre-f16"), [{"prompt": [2, i + 3]} for i in range(9)], "--limit", 4)
    t.eq(list(r), ["r0", "r1", "r2", "r3"], "records")


def test_line_too_long(t):
    with open(t.path("in.jsonl"), "wb") as f:
        f.write(b'{"prompt": [2, 5]}\n{"prompt": "' + b"a" * (16 << 20) + b'"}\n{"prompt": [2, 6]}\n')
    r = t.generate(t.model("demo-opt"), t.path("in.jsonl"), "--host-mem", "256M", rc=3)
    t.eq(r["line-2"]["error"]["code"], "line_too_long", "code")
    t.check(r["line-1"]["error"] is None and r["line-3"]["error"] is None, "the lines beside it")
    t.check(t.last.maxrss < (256 + 64) << 20, f"peak memory {t.last.maxrss >> 20} MiB")


def test_hostile_lines(t):
    """Lines that try to take memory: lists, nesting and strings near the limit of a line."""
    n = 15 << 20
    with open(t.path("in.jsonl"), "wb") as f:
        f.write(b'{"prompt": [' + b"5," * (n // 2) + b"5]}\n")
        f.write(b'{"prompt": ' + b"[" * n + b"}\n")
        f.write(b'{"prompt": [2], "logit_bias": {' + b",".join(b'"%d":1' % i for i in range(1000000)) + b"}}\n")
        f.write(b'{"prompt": [2], "stop": [' + b'"a",' * (n // 4) + b'"a"]}\n')
        f.write(b'{"' + b"k" * n + b'": 1}\n')
        f.write(b'{"prompt": "' + b"\\u0041" * (n // 6) + b'"}\n')
        f.write(b'{"prompt": [2, 6]}\n')
    r = t.generate(t.model("demo-opt"), t.path("in.jsonl"), "--host-mem", "256M", rc=3, timeout=120)
    t.eq([bool(x["error"]) for x in r.values()], [True] * 6 + [False], "errors")
    t.check(t.last.maxrss < (256 + 64) << 20, f"peak memory {t.last.maxrss >> 20} MiB")
    t.check(len(t.read("out.jsonl")) < 1 << 20, "the records repeat the hostile lines")


def test_stdin_and_fifo(t):
    data = b'{"prompt": [2, 5]}\n{"prompt": [2, 6]}\n'
    t.write("in.jsonl", data)
    m = t.model("pre-f16")
    want = t.generate(m, t.path("in.jsonl"), out="a.jsonl")
    t.run("generate", m, "-", "-o", "b.jsonl", data=data)
    same(t, t.records("b.jsonl"), want, "standard input")
    os.mkfifo(t.path("pipe"))
    p = t.start("generate", m, "pipe", "-o", "c.jsonl")
    with open(t.path("pipe"), "wb") as f:
        f.write(data)
    t.eq(t.finish(p).rc, 0, "a pipe's exit")
    same(t, t.records("c.jsonl"), want, "a named pipe")
    t.eq(sorted(os.listdir(t.dir)), ["a.jsonl", "b.jsonl", "c.jsonl", "in.jsonl", "pipe"], "what is left in the folder")


def test_endless_input(t):
    """What never ends is not staged until the disk is full."""
    m = t.model("pre-f16")
    t.run("generate", m, "/dev/zero", "-o", "out.jsonl", rc=1).says("/dev/zero", "256 mib without a line end, from byte 0")
    t.run("generate", m, "-", "-o", "out.jsonl", data=b'{"prompt": [2, 5]}\n' + bytes(257 << 20), rc=1).says("stdin", "256 mib without a line end, from byte 19 ")
    t.eq(os.listdir(t.dir), [], "what is left in the folder")
    want = t.generate(m, [{"prompt": [2, 5], "max_tokens": 2}])
    t.run("generate", m, "-", "-o", "b.jsonl", data=t.read("in.jsonl") + b"x" * (17 << 20) + b"\n", rc=3)
    got = t.records("b.jsonl")
    t.eq(got.pop("line-2")["error"]["code"], "line_too_long", "a line that is merely too long")
    same(t, got, want, "the line before it")


def test_same_file(t):
    m, data = t.model("pre-f16"), b'{"prompt": [2, 5]}\n'
    t.write("in.jsonl", data)
    os.symlink("in.jsonl", t.path("soft.jsonl"))
    os.link(t.path("in.jsonl"), t.path("hard.jsonl"))
    for out in ("in.jsonl", "soft.jsonl", "hard.jsonl"):
        t.run("generate", m, "in.jsonl", "-o", out, "--overwrite", rc=(1, 2)).says("in.jsonl")
        t.eq(t.read("in.jsonl"), data, "the input")


@cases(empty=b"", blank=b"\n\n  \n", bom=b"\xef\xbb\xbf")
def test_empty_input(t, data):
    t.write("in.jsonl", data)
    r = t.run("generate", t.model("pre-f16"), "in.jsonl", "-o", "out.jsonl")
    t.check(len(r.err) + len(r.out) > 0, "nothing was said")
    t.check(not t.exists("out.jsonl") or t.read("out.jsonl") == b"", "there is a result")


def test_no_tokenizer(t):
    """A model without tokenizer files takes token ids only, and its text is empty."""
    r = t.generate(t.model("pre-f16"), [{"prompt": "hello"}, {"prompt": [2, 5], "max_tokens": 3}], rc=3)
    t.check("token" in r["r0"]["error"]["message"], f"message: {r['r0']['error']}")
    t.eq(r["r1"]["response"]["body"]["choices"][0]["text"], "", "text")


def test_warned_first(t):
    """What will be wrong with results is said before the run: the first line in error, results with neither text nor ids."""
    m = t.model("pre-f16")
    t.write("in.jsonl", '{"prompt": [2, 5]}\n\n{"prompt": [2], "\\u001b[31mred": 1}\n{"prompt": []}\n')
    r = t.run("generate", m, "in.jsonl", "-o", "out.jsonl", rc=3).says("warning", "2 of 3 requests", "line 3", "[31mred", "return_token_ids")
    t.check("\x1b" not in r.err, "a control character of the input is said")
    t.write("in.jsonl", '{"prompt": [2, 5], "return_token_ids": true}\n')
    r = t.run("generate", m, "in.jsonl", "-o", "ids.jsonl")
    t.check("warning" not in r.err, f"warned of nothing: {r.err}")


COMMANDS = ("convert", "generate", "plan", "bench", "inspect", "tokenize", "doctor", "probe")
USAGE = {
    "no input": ["generate", "MODEL"],
    "no output": ["generate", "MODEL", "in.jsonl"],
    "unknown option": ["generate", "MODEL", "in.jsonl", "-o", "out.jsonl", "--no-such-option"],
    "unknown command": ["generat"],
    "no command": [],
    "size": ["generate", "MODEL", "in.jsonl", "-o", "out.jsonl", "--host-mem", "12Q"],
    "size negative": ["generate", "MODEL", "in.jsonl", "-o", "out.jsonl", "--host-mem", "-5G"],
    "shares above 100": ["generate", "MODEL", "in.jsonl", "-o", "out.jsonl", "--weights", "host:70,disk:60"],
    "share of nothing": ["generate", "MODEL", "in.jsonl", "-o", "out.jsonl", "--weights", "tape:100"],
    "percent count": ["generate", "MODEL", "in.jsonl", "-o", "out.jsonl", "--percent", "0", "100", "0"],
    "policy": ["generate", "MODEL", "in.jsonl", "-o", "out.jsonl", "--kv-policy", "oracle"],
    "budget": ["generate", "MODEL", "in.jsonl", "-o", "out.jsonl", "--kv-policy", "h2o", "--kv-budget", "-5"],
    "batch 0": ["generate", "MODEL", "in.jsonl", "-o", "out.jsonl", "--gpu-batch-size", "0x"],
    "threads": ["generate", "MODEL", "in.jsonl", "-o", "out.jsonl", "--threads", "many"],
    "order": ["generate", "MODEL", "in.jsonl", "-o", "out.jsonl", "--order", "sideways"],
    "io": ["generate", "MODEL", "in.jsonl", "-o", "out.jsonl", "--io", "tape"],
    "kv dtype": ["generate", "MODEL", "in.jsonl", "-o", "out.jsonl", "--kv-dtype", "f8"],
    "temperature": ["generate", "MODEL", "in.jsonl", "-o", "out.jsonl", "--temperature", "-1"],
    "top-p": ["generate", "MODEL", "in.jsonl", "-o", "out.jsonl", "--top-p", "1.5"],
    "convert one folder": ["convert", "a"],
    "convert dtype": ["convert", "a", "b", "--dtype", "f12"],
}


@cases(**USAGE)
def test_usage(t, args):
    """Wrong usage is exit 2 and names what is wrong."""
    t.write("in.jsonl", '{"prompt": [2, 5]}\n')
    r = t.run(*[t.model("pre-f16") if a == "MODEL" else a for a in args], rc=2)
    t.check(r.err.strip() and not t.exists("out.jsonl"), "nothing was said, or something written")
    if len(args) > 6:
        r.says(args[-2])


@cases(max_tokens=("--max-tokens", ("-1", "1.5", "many", "4294967296"), "from 0 to 4294967295"), limit=("--limit", ("-1", "x"), "of 0 or more"),
       top_k=("--top-k", ("-2", "0.5"), "of 0 or more, or -1"))
def test_usage_of_numbers(t, value):
    """A number that cannot be says which ones can."""
    option, wrong, wanted = value
    t.write("in.jsonl", '{"prompt": [2, 5]}\n')
    for w in wrong:
        t.run("generate", t.model("pre-f16"), "in.jsonl", "-o", "out.jsonl", option, w, rc=2).says(f"{option} {w}: a whole number {wanted} was expected")


def test_ineffective(t):
    """Two options of which one would not count, in either order."""
    m, job = t.model("pre-f16"), t.job([{"prompt": [2, 5]}])
    run = lambda *args: t.run("generate", m, job, "-o", "out.jsonl", *args, rc=2)
    percent = ["--percent", "0", "100", "0", "100", "0", "100"]
    for option in ("--weights", "--kv", "--hidden"):
        for args in ([*percent, option, "disk:100"], [option, "disk:100", *percent]):
            run(*args).says("--percent", f"leave out it or {option}")
    for args in (["--kv-budget", "5"], ["--kv-recent", "5"], ["--kv-heavy", "5"]):
        run("--kv-policy", "h2o", "--kv-budget-of", "prompt", *args).says("--kv-budget-of prompt: only of a --kv-budget in percent")
    t.run("convert", "a", "b", "--seed", "5", rc=2).says("--seed: only random weights (--dummy)")
    t.eq(os.listdir(t.dir), [os.path.basename(job)], "files")


def test_refused(t):
    """Things that cannot be, said before anything is written."""
    m = t.model("pre-f16")
    t.write("in.jsonl", '{"prompt": [2, 5]}\n')
    for args, words in ((["--weights", "gpu:100"], ["gpu"]), (["--kv", "gpu:10,host:90"], ["gpu"]), (["--percent", "20", "80", "0", "100", "0", "100"], ["gpu"]),
                        (["--attention", "gpu"], ["--attention gpu"]), (["--kv", "gpu:100", "--gpu-mem", "0"], ["gpu", "--gpu-mem 0"]),
                        (["--attention", "gpu", "--gpu-mem", "0"], ["--attention gpu", "--gpu-mem 0"]),
                        (["--kv-policy", "h2o", "--kv-positions", "cache"], ["position"])):
        t.run("generate", m, "in.jsonl", "-o", "out.jsonl", *args, rc=(1, 2, 4)).says(*words)
        t.check(not t.exists("out.jsonl"), "something was written")
    t.run("generate", m, "nothing.jsonl", "-o", "out.jsonl", rc=(1, 2)).says("nothing.jsonl")
    t.run("generate", "nowhere", "in.jsonl", "-o", "out.jsonl", rc=(1, 2)).says("nowhere")
    t.run("generate", m, "in.jsonl", "-o", "no/such/folder/out.jsonl", rc=(1, 2)).says("no/such/folder")


def test_swapped(t):
    """Two arguments in the other's place are told so, and nothing is made."""
    m, job, config = t.model("pre-f16"), t.job([{"prompt": [2, 5]}]), os.path.join(TOP, "configs/models/opt-125m.json")
    there = sorted(os.listdir(t.dir))
    for args in (["generate", job, m, "-o", "out.jsonl"], ["tokenize", job, m], ["convert", "dst", t.hf("pre-f16")], ["convert", "--dummy", "dst", config]):
        t.run(*args, rc=2).says(*[a for a in args[1:3] if a[0] != "-"], "seem to be swapped")
    t.eq(sorted(os.listdir(t.dir)), there, "files")
    t.run("convert", "nowhere", m, rc=1).says("nowhere: No such file")     # DST is a packed model, as for --overwrite


def test_text_without_option(t):
    """Plain text where requests were expected: the first line's error names --text, those that follow do not."""
    t.write("in.txt", "Once upon a time\n[There] was a prompt\n")
    t.run("generate", t.model("demo-opt"), "in.txt", "-o", "out.jsonl", rc=3).says("line 1: not JSON", "is read with --text")
    t.eq(["--text" in e["error"]["message"] for e in map(json.loads, t.read("out.jsonl").splitlines())], [True, False], "records that say --text")
    t.run("generate", t.model("demo-opt"), "in.txt", "-o", "out.jsonl", "--text", "--overwrite")
    t.write("in.jsonl", '\n "a text"\n')
    t.run("generate", t.model("demo-opt"), "in.jsonl", "-o", "out2.jsonl", rc=3).says("line 2: an object was expected; plain text, one prompt a line, is read with --text")


def test_help(t):
    """However help is asked for, it is the same, and on stdout; of what is no command it is wrong usage."""
    whole = t.run("--help").out
    for args in (["help"], ["-h"], ["help", "--help"]):
        t.eq(t.run(*args).out, whole, " ".join(args))
    for c in COMMANDS:
        want = t.run(c, "--help").out
        for args in ([c, "-h"], ["help", c], ["--help", c]):
            t.eq(t.run(*args).out, want, " ".join(args))
    for args in (["help", "nothing"], ["nothing"], ["nothing", "--help"]):
        r = t.run(*args, rc=2).says('"nothing" is no command', *COMMANDS)
        t.eq(r.out, "", "stdout")
    t.run(rc=2).says(*COMMANDS)


def test_options_documented(t):
    """Each command has its section in the man page, and each option of its --help is named there and in docs/interface.md; those that commands share stand in generate's."""
    with open(os.path.join(TOP, "docs/penstock.1"), encoding="utf-8") as f:
        man = f.read().replace("\\-", "-")
    with open(os.path.join(TOP, "docs/interface.md"), encoding="utf-8") as f:
        doc = f.read()
    sections = dict(re.findall(r'^\.SH "?([A-Z ]+)"?\n(.*?)(?=^\.SH |\Z)', man, re.M | re.S))
    listed = re.findall(r"^  ([a-z]+) +\S", t.run("help").out.split("Commands:")[1], re.M)
    t.eq(sorted(listed), sorted(COMMANDS), "the commands that help lists")
    has = lambda text, option: re.search(re.escape(option) + r"(?![a-z-])", text)
    options = {c: set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", t.run(c, "--help").out, re.M)) - {"--help", "--usage"} for c in listed}
    for c in listed:
        t.check(c.upper() in sections and f".B penstock {c}\n" in sections["SYNOPSIS"], f"the man page has no section {c.upper()}, or {c} is not in its synopsis")
        t.check(len(options[c]) > 1, f"{c} --help names {options[c]}")
        shared = sections["GENERATE"] if c in ("plan", "bench") else ""
        t.eq([o for o in sorted(options[c]) if not has(sections[c.upper()], o) and not (o in options["generate"] and has(shared, o))], [], f"{c}: not in the man page")
        t.eq([o for o in sorted(options[c]) if not has(doc, o)], [], f"{c}: not in docs/interface.md")


def test_help_and_version(t):
    out = t.run("--help").out
    for c in ("convert", "generate", "plan", "inspect", "doctor", "tokenize"):
        t.check(c in out, f"--help does not name {c}")
        h = t.run(c, "--help").out
        t.check(len(h) > 100, f"{c} --help is empty")
    h = t.run("generate", "--help").out
    for o in ("--host-mem", "--disk-space", "--offload-dir", "--gpu-mem", "--attention", "--weights", "--kv", "--hidden", "--percent",
              "--gpu-batch-size", "--num-gpu-batches", "--prefill-tokens", "--kv-policy", "--kv-budget", "--kv-heavy", "--kv-recent", "--kv-sinks",
              "--kv-dtype", "--threads", "--io", "--queue-depth", "--prefetch", "--max-tokens", "--temperature", "--top-p", "--top-k", "--seed",
              "--stop", "--limit", "--order", "--no-resume", "--overwrite", "--report", "--dump-kv", "--progress", "--trace", "--dry-run", "--text",
              "--pack-dir", "--verify"):
        t.check(o in h, f"generate --help does not name {o}")
    t.check("0." in t.run("--version").out, "--version")
