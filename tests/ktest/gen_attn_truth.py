#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes attn_truth.h: what tests/oracle/oracle.py's policies keep of random q, k, v, over a prompt and 30 steps.

    tests/ktest/gen_attn_truth.py > tests/ktest/attn_truth.h        (needs numpy)

q, k and v come from a small generator that attn_truth_test.c has as well, so only results are stored. A case whose
victim is nearly tied with another (where f32 may choose differently) is refused: change its seed.
"""
import os, sys
from types import SimpleNamespace
import numpy as np
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
from oracle import Policy, softmax

NKV, G, D, PROMPT, STEPS = 2, 2, 8, 12, 30
CASES = [  # policy, sinks, heavy, recent, kv type, seed
    ("full", 0, 0, 0, "f32", 1), ("full", 0, 0, 0, "f16", 2),
    ("local", 0, 0, 7, "f32", 3), ("local", 0, 0, 1, "f16", 4),
    ("sink", 2, 0, 4, "f32", 5), ("sink", 3, 0, 2, "f16", 6),
    ("h2o", 0, 4, 4, "f32", 7), ("h2o", 0, 4, 4, "f16", 8),
    ("h2o", 2, 3, 3, "f32", 9), ("h2o", 1, 5, 1, "f16", 10),
    ("h2o", 0, 5, 0, "f32", 11), ("h2o", 2, 4, 0, "f16", 12),
    ("h2o", 0, 9, 8, "f32", 13),
]

class Lcg:
    def __init__(self, seed):
        self.s = seed
    def floats(self, n, scale):  # multiples of scale * 2^-20 in [-scale, scale): exact in f32
        out = np.empty(n)
        for i in range(n):
            self.s = (self.s * 6364136223846793005 + 1442695040888963407) % 2**64
            out[i] = ((self.s >> 43) - 2**20) * 2.0**-20 * scale
        return out

def margin(pol, pos, a, t):
    """How far the next candidate is from the one that goes."""
    n = len(pos)
    if pol.name not in ("h2o",) or n <= pol.S + pol.H + pol.R:
        return 1
    order = np.argsort(pos)
    recent = set(order[n - pol.R:]) if pol.R else set()
    rest = sorted(a[i] for i in order if pos[i] >= pol.S and i not in recent)
    return min([1] + [b - c for c, b in zip(rest, rest[1:])][:n])

def run(case):
    name, s, h, r, kv, seed = case
    pol = Policy(SimpleNamespace(policy=name, sinks=s, heavy=h, recent=r, block=16, summary=4, topk=16))
    g = Lcg(seed)
    total = PROMPT + STEPS
    q = g.floats(total * NKV * G * D, 4).reshape(total, NKV * G, D)
    k = g.floats(total * NKV * D, 2).reshape(total, NKV, D)
    v = g.floats(total * NKV * D, 1).reshape(total, NKV, D)
    if kv == "f16":
        k, v = (x.astype(np.float16).astype(np.float64) for x in (k, v))
    scale = float(np.float32(1 / np.sqrt(D)))
    o, kept, scores, worst = [], [], [], 1
    cache = []
    causal = np.where(np.arange(PROMPT)[:, None] >= np.arange(PROMPT)[None, :], 0.0, -np.inf)
    step_o = np.empty((PROMPT, NKV * G))
    for n in range(NKV):
        p = softmax(np.einsum("ihd,jd->hij", q[:PROMPT, n * G:(n + 1) * G] * scale, k[:PROMPT, n]) + causal)
        step_o[:, n * G:(n + 1) * G] = np.einsum("hij,j->ih", p, v[:PROMPT, n, 0])
        a = p.sum((0, 1))
        pos = np.arange(PROMPT)
        worst = min(worst, margin(pol, pos, a, PROMPT - 1))
        keep = pol.keep(pos, a, PROMPT - 1)
        cache.append((pos[keep], a[keep]))
    o += list(step_o)
    snap = lambda: (kept.append([list(map(int, c[0])) for c in cache]), scores.append([list(c[1]) for c in cache]))
    snap()
    for t in range(PROMPT, total):
        row = np.empty(NKV * G)
        for n in range(NKV):
            pos, a = cache[n]
            pos, a = np.append(pos, t), np.append(a, 0.0)
            p = softmax(q[t, n * G:(n + 1) * G] * scale @ k[pos, n].T)
            row[n * G:(n + 1) * G] = p @ v[pos, n, 0]
            a = a + p.sum(0)
            worst = min(worst, margin(pol, pos, a, t))
            i = pol.keep(pos, a, t)
            cache[n] = (pos[i], a[i])
        o.append(row)
        snap()
    if worst < 2e-5:
        sys.exit(f"{case}: nearly tied ({worst:.1e}), take another seed")
    return o, kept, scores

def numbers(xs, fmt):
    words, lines, line = [fmt(x) for x in xs], [], "   "
    for w in words:
        if len(line) + len(w) + 2 > 110:
            lines.append(line)
            line = "   "
        line += f" {w},"
    return "\n".join(lines + [line])

def main():
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* Written by gen_attn_truth.py from the oracle's policies: do not edit. Per case: component 0 of each query head's output for")
    print(" * every token; then after the prompt and after each step, per KV head, the count of kept positions and these, ascending;")
    print(" * then the scores of the last step in that order. */")
    print("/* clang-format off */")
    print("#ifndef PS_ATTN_TRUTH_H\n#define PS_ATTN_TRUTH_H\n#include <stdint.h>\n")
    print(f"enum {{ KV_HEADS = {NKV}, GROUP = {G}, D = {D}, PROMPT = {PROMPT}, STEPS = {STEPS} }};")
    rows = []
    for i, c in enumerate(CASES):
        o, kept, scores = run(c)
        print(f"static const float o_{i}[] = {{\n" + numbers(np.concatenate(o), lambda x: f"{x:.7g}f" if "." in f"{x:.7g}" or "e" in f"{x:.7g}" else f"{x:.1f}f") + "\n};")
        flat = []
        for step in kept:
            for head in step:
                flat += [len(head)] + head
        print(f"static const int16_t kept_{i}[] = {{\n" + numbers(flat, str) + "\n};")
        print(f"static const float score_{i}[] = {{\n" + numbers([x for h in scores[-1] for x in h], lambda x: f"{x:.8f}f") + "\n};")
        heavy = "UINT32_MAX" if c[0] == "full" else c[2]
        rows.append(f'    {{ "{c[0]} {c[1]}/{c[2]}/{c[3]} {c[4]}", {{ {c[1]}, {heavy}, {c[3]} }}, {1 if c[4] == "f16" else 0}, {c[5]}, o_{i}, kept_{i}, score_{i} }},')
    print("static const struct {\n    const char *name;\n    uint32_t keep[3]; /* sinks, heavy, recent */\n    int f16;\n    uint64_t seed;")
    print("    const float *o;\n    const int16_t *kept;\n    const float *score;\n} truths[] = {")
    print("\n".join(rows) + "\n};\n#endif")

main()
