# SPDX-License-Identifier: Apache-2.0
"""One job's choices are the same, byte for byte, however it is run on an emulated GPU: placement, threads, I/O, pinned memory, the order in
which the GPU does its work; and, where the design promises it, batch shape.

Decode attention on the GPU and on the host add up in orders of their own: bytes are compared where the same slabs have it on the host. A job with KV in f16 is
compared in one batch shape, since a linear takes its rows in other ways from 17 and from 257 on (docs/design.md, CUDA rows)."""
import re

from harness import POLICIES, Gpu, cases, same, smoke, token_job

SHAPE = ["--gpu-batch-size", "3", "--num-gpu-batches", "2"]


def small_job(vocab=257, seed=7):
    """More requests than slots; all tell log-probabilities, where a last bit shows."""
    return [(cid, {**b, "logprobs": 2, "return_tokens_as_token_ids": True}) for cid, b in token_job(vocab, n=7, longest=26, new=5, seed=seed)]


def percent(*six):
    return ["--percent", *six]


# FlexGen's list of placements that must work (1b3_test), but for those with compression.
FLEXGEN = {
    "all on the GPU": percent(100, 0, 100, 0, 100, 0),
    "weights on the host": percent(0, 100, 100, 0, 100, 0),
    "KV on the host": percent(100, 0, 0, 100, 100, 0),
    "weights and KV on the host": percent(0, 100, 0, 100, 100, 0),
    "weights on disk": percent(0, 0, 100, 0, 100, 0),
    "KV on disk": percent(100, 0, 0, 0, 100, 0),
    "half of the weights": percent(50, 50, 100, 0, 100, 0),
    "half of the KV": percent(100, 0, 50, 50, 100, 0),
}
MIXED = ["--weights", "gpu:30,host:30,disk:40", "--kv", "gpu:40,host:30,disk:30", "--hidden", "gpu:50,host:50"]
MORE = {
    "hidden on the host": percent(100, 0, 100, 0, 0, 100),
    "hidden on disk": percent(0, 100, 0, 100, 0, 0),
    "hidden half on disk": percent(100, 0, 0, 100, 0, 50),
    "all on the host": percent(0, 100, 0, 100, 0, 100),
    "all on disk": percent(0, 0, 0, 0, 0, 0),
    "KV on host and disk": percent(0, 50, 0, 50, 0, 50),
    "mixed": MIXED,
}
RUNS = {
    "1 thread": [*MIXED, "--threads", "1"],
    "2 threads": [*MIXED, "--threads", "2"],
    "pread": [*percent(0, 0, 0, 0, 0, 0), "--io", "pread"],
    "pread depth 1": [*MIXED, "--io", "pread", "--queue-depth", "1"],
    "uring depth 2": [*MIXED, "--queue-depth", "2"],
    **{f"prefetch {n}": [*percent(20, 30, 0, 50, 0, 50), "--prefetch", n] for n in range(5)},
    "verify": [*MIXED, "--verify", "always"],
    "by completion": [*MIXED, "--order", "completion"],
}


def host_only(placements):
    """Those with all KV beside the GPU: which slabs lie on it does not matter then."""
    return {k: ["--kv", "host:60,disk:40" if o == MIXED else "host:100", *o[:2], *o[4:]] if o[:6] == MIXED else o
            for k, o in placements.items() if o[:6] == MIXED or o[0] == "--percent" and o[3] == 0}


def compare(t, model, reqs, placements, options):
    want = None
    for name, o in placements.items():
        got = t.generate(model, reqs, *o, *options, gpu=Gpu(seed=1))
        t.check(all(r["error"] is None for r in got.values()), f"{name}: failed")
        want = want or got
        same(t, got, want, f"{name}, {' '.join(options)}")


# Besides FLEXGEN: all for h2o, and each for one other policy.
MORE_OF = {"full": ("hidden on the host", "all on disk"), "local": ("hidden on disk", "all on the host", "mixed"),
           "sink": ("hidden half on disk", "KV on host and disk"), "h2o": tuple(MORE)}


@cases(**{policy: policy for policy in POLICIES})
def test_placements(t, policy):
    table = {**FLEXGEN, **{name: MORE[name] for name in MORE_OF[policy]}}
    compare(t, t.model("pre-f16"), small_job(), table, [*SHAPE, *POLICIES[policy], "--attention", "gpu"])
    compare(t, t.model("pre-f16"), small_job(), host_only(table), [*SHAPE, *POLICIES[policy], "--attention", "host"])


AUTO = {
    "weights on disk": ["--weights", "disk:100", "--hidden", "host:100"],
    "hidden on disk": ["--weights", "host:100", "--hidden", "disk:100"],
    "mixed": MIXED[:2] + MIXED[4:],
}


@cases(**{policy: policy for policy in POLICIES})
def test_auto(t, policy):
    """How many slabs have their attention on the host is a matter of cost, and so of what else passes the links. Where it is as many, with one share of
    KV on the GPU, it is the same ones, and the same bytes."""
    firsts, compared = {}, {}
    for name, o in AUTO.items():
        run = [t.model("pre-f16"), small_job(), *o, "--kv", "host:60,disk:40", *SHAPE, *POLICIES[policy], "--attention", "auto"]
        t.generate(*run, "--dry-run", gpu=Gpu(seed=1))
        slabs = re.search(r"attention of (\d+) of 6 KV slabs", t.last.out)[1]
        got = t.generate(*run, gpu=Gpu(seed=1))
        t.check(all(r["error"] is None for r in got.values()), f"{name}: failed")
        same(t, got, firsts.setdefault(slabs, got), f"{name}, {slabs} slabs on the host, {policy}")
        compared.setdefault(slabs, []).append(name)
    t.check(any(len(x) > 1 for n, x in compared.items() if n not in "06"), f"nothing to compare here any more: {compared}")


@cases(gpu="gpu", host="host")
def test_runs(t, attention):
    """What is around the placement, one with everything in it."""
    table = {"first": MIXED, **RUNS}
    if attention == "host":
        table = host_only(table)
    compare(t, t.model("pre-f16"), small_job(), table, [*SHAPE, *POLICIES["h2o"], "--attention", attention])


@cases(**{n: n for n in ("post-bf16", "pre-f32", "shards-bf16", "d80-f16")})
def test_other_models(t, name):
    vocab = {"post-bf16": 131, "pre-f32": 300, "shards-bf16": 211, "d80-f16": 97}[name]
    reqs = small_job(vocab, seed=3)
    few = ("all on the GPU", "all on disk", "mixed")
    table = {k: o for k, o in {**FLEXGEN, **MORE}.items() if k in few}
    compare(t, t.model(name), reqs, table, [*SHAPE, *POLICIES["h2o"], "--attention", "gpu"])
    compare(t, t.model(name), reqs, host_only(table), [*SHAPE, *POLICIES["h2o"], "--attention", "host"])


SHAPES = {
    "3 slots, 2 micro-batches": SHAPE,
    "1 slot": ["--gpu-batch-size", "1", "--num-gpu-batches", "1"],
    "2 slots, 5 micro-batches": ["--gpu-batch-size", "2", "--num-gpu-batches", "5"],
    "all at once": ["--gpu-batch-size", "16", "--num-gpu-batches", "1"],
    "few prompt tokens": [*SHAPE, "--prefill-tokens", "27"],
    "as planned": [],
}


@cases(gpu="gpu", host="host")
def test_shapes(t, attention):
    """With KV in f32, every row is computed in one way, whatever rows are beside it: linear takes its inputs unrounded."""
    placement = percent(100, 0, 100, 0, 100, 0) if attention == "gpu" else percent(0, 50, 0, 50, 0, 50)
    compare(t, t.model("pre-f16"), small_job(), {k: [*placement, *o] for k, o in SHAPES.items()}, [*POLICIES["h2o"], "--kv-dtype", "f32", "--attention", attention])


def test_shapes_of_few_rows(t):
    """With KV in f16, too, as long as no micro-batch has more than 16 rows."""
    reqs = [(cid, {**b, "prompt": b["prompt"][:5]}) for cid, b in small_job()]
    table = {k: [*percent(0, 100, 0, 100, 0, 100), *SHAPES[k]] for k in ("3 slots, 2 micro-batches", "1 slot", "2 slots, 5 micro-batches")}
    compare(t, t.model("pre-f16"), reqs, table, [*POLICIES["h2o"], "--attention", "gpu"])


@cases(**{"8M": "8M", "4M": "4M"})
def test_little_pinned_memory(t, most):
    """Weights that cannot be pinned pass through memory that is: said, and the same bytes."""
    model, reqs = t.model("demo-opt"), [(cid, {**b, "max_tokens": 2}) for cid, b in small_job()[:2]]
    options = [*percent(0, 100, 0, 100, 0, 100), *SHAPE, "--attention", "gpu"]
    want = t.generate(model, reqs, *options, gpu=Gpu(seed=1))
    t.check("pinned" not in t.last.err, t.last.err)
    same(t, t.generate(model, reqs, *options, gpu=Gpu(seed=1, pin=most)), want, f"{most} pinned")
    t.last.says("of host memory are pinned")


# ---------------------------------------------------------------- orders

EVERYTHING = {
    "gpu": ["--weights", "gpu:30,host:30,disk:40", "--kv", "gpu:30,host:40,disk:30", "--hidden", "host:100", "--attention", "gpu"],
    "host": ["--weights", "gpu:30,host:30,disk:40", "--kv", "gpu:30,host:40,disk:30", "--hidden", "host:100", "--attention", "host"],
}


def orders(t, attention, gpus):
    reqs = small_job()[:4]
    options = [*EVERYTHING[attention], "--gpu-batch-size", "2", "--num-gpu-batches", "2", *POLICIES["h2o"]]
    want = t.generate(t.model("pre-f16"), reqs, *options, gpu=Gpu(seed=1))
    for gpu in gpus:
        same(t, t.generate(t.model("pre-f16"), reqs, *options, gpu=gpu), want, f"{attention}, seed {gpu.knobs['seed']}")


@cases(gpu="gpu", host="host")
def test_orders(t, attention):
    """Late, early, drawn, one stream held back: nothing that the design leaves open changes a byte, and the emulation sees no access unordered."""
    orders(t, attention, [Gpu(seed=s) for s in range(2, 24)])


@cases(gpu="gpu", host="host")
def test_orders_every_access(t, attention):
    """The same with every access of a kernel known."""
    orders(t, attention, [Gpu(race=True, seed=s) for s in range(24, 28)])


@smoke
def test_an_order_or_two(t):
    orders(t, "host", [Gpu(seed=0), Gpu(race=True, seed=3)])
