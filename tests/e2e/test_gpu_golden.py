# SPDX-License-Identifier: Apache-2.0
"""Tokens, logits and kept KV entries on an emulated GPU against the oracle's values (tests/golden.py does the comparing). With KV in f32 linear
layers take their inputs unrounded, so that only sums differ from the oracle's: these cases are held to a tight tolerance."""
import json, os, shutil

from harness import SHARED, Gpu, cases, smoke
from test_golden import golden, own

PLACEMENTS = {
    "gpu": ["--weights", "gpu:100", "--kv", "gpu:100", "--hidden", "gpu:100"],
    "host": ["--weights", "host:100", "--kv", "host:100", "--hidden", "host:100", "--attention", "gpu"],
    "disk": ["--weights", "disk:100", "--kv", "disk:100", "--hidden", "disk:100", "--attention", "host"],
    "far": ["--weights", "gpu:100", "--kv", "host:100", "--hidden", "gpu:100", "--attention", "host"],
    "mixed": ["--weights", "gpu:30,host:30,disk:40", "--kv", "gpu:40,host:30,disk:30", "--hidden", "gpu:50,host:50", "--attention", "auto"],
}
# Of logit gaps. An input that tensor cores take is rounded to f16, 2^-11 of it (docs/design.md, CUDA rows).
EXACT, ROUNDED = "0.0001", "0.03"
MANY_BF16 = "0.06"      # beyond 256 rows: to bf16, 2^-8
ALL = ("full", "local", "sink", "h2o")
EVERY = os.environ.get("PS_E2E_GOLDEN") == "all"        # all cases, in all placements


def part(folder, most_prompts, policies, kv_type, shortest):
    """Of golden.json in this folder, the first case of each policy and its like for other prompts (or every case); the last (or shortest) prompts alone, if there
    are more than most_prompts (0: all)."""
    path = os.path.join(folder, "golden.json")
    with open(path) as f:
        g = json.load(f)
    first, chosen = {}, []
    for c in g["cases"]:
        kind = [c.get(k) for k in ("sinks", "heavy", "recent", "positions", "new")]
        if c["policy"] in policies and c["kv_dtype"] == kv_type and (not most_prompts or first.setdefault(c["policy"], kind) == kind):
            chosen.append(c)
    prompts = sorted({c["prompt"] for c in chosen}, key=lambda i: -len(g["prompts"][i]) if shortest else i)[-most_prompts:]
    g["cases"] = [{**c, "prompt": prompts.index(c["prompt"])} for c in chosen if c["prompt"] in prompts]
    g["prompts"] = [g["prompts"][i] for i in prompts]
    with open(path, "w") as f:
        json.dump(g, f)


def compare(t, make, placement, exact=ALL, rounded=ALL, most_prompts=2, copies=1, tolerance=ROUNDED):
    """make() -> a model's folder with its golden.json; exact, rounded: policies with KV in f32 and in f16; copies of the prompts in one micro-batch."""
    if EVERY and most_prompts > 1:
        exact = rounded = ALL
        most_prompts = 0
    for kv_type, policies, tol in (("f32", exact, EXACT), ("f16", rounded, tolerance)):
        if not policies:
            continue
        folder = make()
        part(folder, most_prompts, policies, kv_type, copies > 1)
        many = ["--gpu-batch-size", str(most_prompts * copies), "--num-gpu-batches", "1"] if copies > 1 else []
        golden(t, folder, "--tolerance", tol, "--copies", str(copies), "--", *PLACEMENTS[placement], *many, gpu=Gpu(seed=1))
        shutil.rmtree(folder)


def each(*names):
    """-> cases: (model, placement)"""
    if EVERY:
        return {f"{n}, {where}": (n, where) for n in names for where in PLACEMENTS}
    return {n: (n, "mixed") for n in names}


@cases(gpu=("gpu", ALL, ALL), host=("host", ALL, ("h2o",)), disk=("disk", ALL, ("full", "h2o")), mixed=("mixed", ALL, ("h2o",)),
       **({"far": ("far", ALL, ALL)} if EVERY else {}))
def test_placements(t, value):
    compare(t, lambda: own(t, "pre-f16"), *value)


@cases(**each("post-bf16", "pre-f32", "shards-bf16", "d80-f16"))
def test_own_models(t, value):
    name, where = value
    compare(t, lambda: own(t, name), where, ("h2o",), ALL)


@cases(**{"pre-f16, gpu": ("pre-f16", "gpu", ROUNDED), "post-bf16, far": ("post-bf16", "far", MANY_BF16)})
def test_many_rows(t, value):
    """A decode pass of so many rows that linears are the library's: what they read is kept rounded to the weights' type, and attention's result comes
    from the host where that has it."""
    name, where, tolerance = value
    compare(t, lambda: own(t, name), where, (), ("h2o",), 1, copies=260, tolerance=tolerance)


@smoke
def test_one_model_short(t):
    compare(t, lambda: own(t, "pre-f16"), "mixed", ("h2o",), ("h2o",), most_prompts=1)


@cases(**each("tiny-opt", "tiny-opt-bin", "tiny-opt-post"))
def test_shared_models(t, value):
    name, where = value
    folder = os.path.join(SHARED, "models", name)
    if not os.path.exists(os.path.join(folder, "golden.json")):
        t.skip(f"no {name} beside this checkout")
    compare(t, lambda: shutil.copytree(folder, t.path(name)), where, ("h2o",), ALL)
