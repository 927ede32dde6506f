#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes golden.json for a Hugging Face model folder from the oracle; tests/golden.py reads it. Needs numpy.

    make_golden.py MODEL_FOLDER > golden.json
    make_golden.py --all              makes tests/data/golden-*.json for every model of tests/e2e/make_models.py

Per case: policy and parameters, the oracle's greedy tokens, the four best logits of every step, what every KV head kept after
the prompt and at the end, and the smallest margins met: between the best and second-best logit, and between the scores of the
last entry kept and the first one dropped. A margin below an engine's rounding says that the case cannot be compared.
"""
import json, os, random, subprocess, sys, tempfile, types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import oracle

POLICIES = [
    dict(policy="local", recent=9),
    dict(policy="sink", sinks=4, recent=9),
    dict(policy="sink", sinks=1, recent=1),
    dict(policy="h2o", heavy=6, recent=6),
    dict(policy="h2o", heavy=11, recent=0),
    dict(policy="h2o", heavy=5, recent=4, sinks=2),
    dict(policy="h2o", heavy=1, recent=1),
    dict(policy="h2o", heavy=40, recent=40),
]
LENGTHS = [1, 2, 7, 19, 40, 61]
NEW = 20


class Watched(oracle.Policy):
    """The oracle's policy, which also notes how close its choices were."""
    margin = None

    def keep(self, pos, score, t):
        kept = super().keep(pos, score, t)
        free = [i for i in kept if pos[i] >= self.S and pos[i] <= t - self.R] if self.name == "h2o" else []
        gone = [i for i in range(len(pos)) if i not in set(kept)]
        if free and gone:
            m = min(score[i] for i in free) - max(score[i] for i in gone)
            self.margin = m if self.margin is None else min(self.margin, m)
        return kept


def case(model, prompts, i, p, kv):
    a = types.SimpleNamespace(**{**dict(sinks=0, heavy=0, recent=0, block=16, summary=4, topk=16), **p})
    pol = Watched(a)
    toks, _, steps = oracle.run(model, prompts[i], NEW, None, pol, "true", "f64" if kv == "f32" else "f16")
    top, margin = [], None
    for logits, _ in steps:
        best = sorted(range(len(logits)), key=lambda j: (-logits[j], j))[:4]
        top.append([[j, round(float(logits[j]), 6)] for j in best])
        gap = float(logits[best[0]] - logits[best[1]])
        margin = gap if margin is None else min(margin, gap)
    full = p["policy"] == "full"
    kept = lambda s, k: None if full else [[[head[k] if k == 0 else [round(x, 5) for x in head[1]] for head in layer] for layer in s[1]]][0]
    return {**p, "positions": "true", "kv_dtype": kv, "new": NEW, "tokens": toks, "top": top, "kept": kept(steps[-1], 0),
            "scores": kept(steps[-1], 1) if p["policy"] == "h2o" else None, "kept_after_prompt": kept(steps[0], 0),
            "margin_token": round(margin, 6), "margin_evict": None if pol.margin is None else round(pol.margin, 6), "prompt": i}


def golden(folder):
    model = oracle.Model(folder)
    rng = random.Random(model.vocab)
    prompts = [[2] + [rng.randrange(3, model.vocab) for _ in range(n - 1)] for n in LENGTHS]
    cases = [case(model, prompts, i, dict(policy="full"), kv) for i in range(len(prompts)) for kv in ("f32", "f16")]
    for p in POLICIES:
        for i in range(2, len(prompts)):
            for kv in ("f32", "f16"):
                if (i + len(cases) // 2) % 2 == 0:      # half of the prompts each: the files stay small
                    cases.append(case(model, prompts, i, p, kv))
    greedy = [c["tokens"] for c in cases if c["policy"] == "full" and c["kv_dtype"] == "f32"]
    return {"model": model.kind, "seed": model.vocab, "prompts": prompts, "greedy": greedy, "cases": cases}


def main():
    if sys.argv[1:] != ["--all"]:
        json.dump(golden(sys.argv[1]), sys.stdout, separators=(",", ":"))
        return
    data = os.path.join(HERE, "..", "data")
    with tempfile.TemporaryDirectory() as d:
        made = subprocess.run([sys.executable, os.path.join(HERE, "..", "e2e", "make_models.py"), d], check=True, capture_output=True, text=True)
        for folder in made.stdout.split():
            with open(os.path.join(data, f"golden-{os.path.basename(folder)}.json"), "w") as f:
                json.dump(golden(folder), f, separators=(",", ":"))
                f.write("\n")


if __name__ == "__main__":
    main()
