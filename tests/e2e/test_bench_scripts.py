# SPDX-License-Identifier: Apache-2.0
"""bench/papers.py and bench/plot.py: what they compute and write. Neither measures anything."""
import json, os, subprocess, sys

from harness import TOP

sys.path.insert(0, os.path.join(TOP, "bench"))
import papers


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
