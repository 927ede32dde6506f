# SPDX-License-Identifier: Apache-2.0
"""Tokens, logits and kept KV entries against the oracle's values (tests/golden.py does the comparing)."""
import json, os, shutil, subprocess, sys

from harness import SHARED, TOP, cases, smoke


def golden(t, folder, *options, gpu=None, env=None):
    exe, env = gpu.program(t.exe) if gpu else t.exe, gpu.env("/dev/null") if gpu else env or {}
    r = subprocess.run([sys.executable, os.path.join(TOP, "tests", "golden.py"), exe, folder, "--only", "full,local,sink,h2o", *options],
                       capture_output=True, text=True, env={**t.shared.env, **env}, timeout=600 * t.shared.slow_by)
    if r.returncode:
        t.check(False, (r.stdout + r.stderr)[-1500:])
    t.check(" 0 failed" in r.stdout, r.stdout)


def own(t, name):
    src = t.copy_hf(name, name)
    shutil.copy(os.path.join(TOP, "tests", "data", f"golden-{name}.json"), os.path.join(src, "golden.json"))
    return src


@cases(**{n: n for n in ("pre-f16", "post-bf16", "pre-f32", "shards-bf16", "d80-f16")})
def test_own_models(t, name):
    golden(t, own(t, name))


@smoke
def test_one_model_short(t):
    src = own(t, "pre-f16")
    g = json.load(open(os.path.join(src, "golden.json")))
    g["cases"] = [c for c in g["cases"] if c["prompt"] == 3]
    json.dump(g, open(os.path.join(src, "golden.json"), "w"))
    golden(t, src)


@cases(disk=["--weights", "disk:100", "--kv", "disk:100"], split=["--weights", "host:50,disk:50", "--kv", "host:50,disk:50", "--hidden", "disk:100"])
def test_offloaded(t, options):
    golden(t, own(t, "pre-f16"), "--", *options)


@cases(scalar="0", avx2="1")
def test_kernel_levels(t, mask):
    """Also with the kernels of lesser machines; the tests beside this one use the best that this one has."""
    for name in ("pre-f16", "post-bf16"):
        golden(t, own(t, name), env={"PS_CPU_MASK": mask})


@cases(**{n: n for n in ("tiny-opt", "tiny-opt-bin", "tiny-opt-post")})
def test_shared_models(t, name):
    folder = os.path.join(SHARED, "models", name)
    if not os.path.exists(os.path.join(folder, "golden.json")):
        t.skip(f"no {name} beside this checkout")
    golden(t, folder)


def test_scores_in_dump(t):
    """--dump-kv's scores are the oracle's, and positions ascend."""
    name = "shards-bf16"
    g = json.load(open(os.path.join(TOP, "tests", "data", f"golden-{name}.json")))
    done = 0
    for c in g["cases"]:
        if c["policy"] != "h2o" or c["kv_dtype"] != "f32" or (c["margin_evict"] or 1) < 1e-3 or c["margin_token"] < 2e-3 or done == 4:
            continue
        args = ["--kv-policy", "h2o", "--kv-heavy", c["heavy"], "--kv-recent", c["recent"], "--kv-sinks", c.get("sinks", 0), "--kv-dtype", "f32"]
        t.one(t.model(name), dict(prompt=g["prompts"][c["prompt"]], max_tokens=c["new"] + 1, ignore_eos=True), *args,
              "--dump-kv", t.path("kv.jsonl"), "--no-resume", "--overwrite")
        rows = [json.loads(x) for x in t.read("kv.jsonl").splitlines()]
        t.eq(sorted(r["layer"] for r in rows), list(range(len(c["kept"]))), "layers")
        for r in rows:
            t.eq(r["tokens_fed"], len(g["prompts"][c["prompt"]]) + c["new"], "tokens_fed")
            t.eq(r["kept"], c["kept"][r["layer"]], "kept")
            for got, want in zip(r["scores"], c["scores"][r["layer"]]):
                t.eq(len(got), len(want), "scores of a head")
                for a, b in zip(got, want):
                    t.near(a, b, 2e-3 * max(1.0, b), f"score in layer {r['layer']}")
        done += 1
    t.check(done >= 3, "too few cases could be compared")
