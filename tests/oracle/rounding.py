# SPDX-License-Identifier: Apache-2.0
"""What the oracle says about one sequence, and how far an engine that rounds to f32 may be from it. Needs numpy.

The oracle runs three times over the tokens that the engine chose: as it is, and with noise of a few bits of f32, once added and once
subtracted, on whatever passes from one layer to the next, keeping the same entries. Tolerances are a floor plus a multiple of what the
noise moved. (Both signs, so that a K or V beside the boundary between two f16 values falls on its other side in one of them, as it may in
the engine.) A choice between entries whose scores are closer than that is too close to call: from the next step on the engine may
rightly be elsewhere. Equal whole numbers are not: every query behind them saw one key alone, with probability 1 (exp() underflows in
f32 long before it does in f64), so the engine's scores are the same numbers, and the rule for equal scores must be met.
"""
import os, sys, types

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import oracle

NOISE = 2.0 ** -19
TIMES = 4               # of what the noise moved
LOGIT, SCORE = 2e-3, {"f32": 1e-4, "f16": 4e-4}     # the floors


class Noisy(oracle.Model):
    def __init__(self, model, sign):
        self.__dict__.update(model.__dict__)
        self.noise, self.rng = sign * NOISE, np.random.default_rng(1)

    def moved(self, x):
        return x + self.noise * np.abs(x).max(-1, keepdims=True) * self.rng.choice((-1.0, 1.0), x.shape)

    def embed(self, ids, pos):
        return self.moved(super().embed(ids, pos))

    def qkv(self, l, x):
        return [self.moved(a) for a in super().qkv(l, x)]

    def after(self, l, x, y):
        return self.moved(super().after(l, x, self.moved(y)))

    def head(self, x):
        return self.moved(super().head(x))


class Watched(oracle.Policy):
    """Writes down every choice: positions and scores before, indices kept, position of the query."""

    def __init__(self, a):
        super().__init__(a)
        self.calls = []

    def keep(self, pos, score, t):
        kept = super().keep(pos, score, t)
        self.calls.append((pos, score, kept, t))
        return kept


class Again(oracle.Policy):
    """Makes the same choices, and notes how far each call's scores are from those of the first time."""

    def __init__(self, a, calls):
        super().__init__(a)
        self.calls, self.moved = iter(calls), []

    def keep(self, pos, score, t):
        _, first, kept, _ = next(self.calls)
        self.moved.append(float(np.abs(score - first).max()))
        return kept


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


class Right:
    """split: (sinks, heavy, recent), or None where everything stays. tokens: those generated; the last of them is not fed."""

    def __init__(self, model, prompt, tokens, split, kv_dtype, name):
        self.name, self.layers = name, model.layers
        s, h, r = split or (0, 0, 0)
        a = types.SimpleNamespace(policy=name, sinks=s, heavy=h, recent=r, block=1, summary=1, topk=1)
        fed, kv = list(tokens[:-1]), "f64" if kv_dtype == "f32" else "f16"
        self.last, self.fed, self.heads = len(fed), len(prompt) + len(fed), model.nkv
        first = Watched(a)
        _, self.plog, self.steps = oracle.run(model, prompt, len(fed), fed, first, "true", kv)
        again = [Again(a, first.calls) for _ in range(2)]
        self.noisy = [oracle.run(Noisy(model, sign), prompt, len(fed), fed, x, "true", kv)[1:] for sign, x in zip((1, -1), again)]
        self.tol = [SCORE[kv_dtype] + TIMES * max(m) for m in zip(*(x.moved for x in again))]
        close = [split is not None and self.near(c, s, h, r, tol) for c, tol in zip(first.calls, self.tol)]
        per = self.layers * self.heads
        self.close = [close[i:i + per] for i in range(0, len(close), per)]
        self.first = next((i for i, c in enumerate(self.close) if any(c)), self.last + 1)

    @staticmethod
    def near(call, sinks, heavy, recent, tol):
        """Whether rounding may have made another choice between heavy entries."""
        pos, score, kept, t = call
        if len(kept) == len(pos) or not heavy:
            return False
        free = (pos >= sinks) & (pos <= t - recent)
        stays = np.zeros(len(pos), bool)
        stays[kept] = True
        least, most = score[free & stays].min(), score[free & ~stays].max()
        if least == most == round(least):
            away = np.abs(score[free] - least)
            return bool(((away > 0) & (away <= tol)).any())
        return not least - most > tol

    @staticmethod
    def judged(right, noisy):
        right = log_softmax(right)
        return right, LOGIT + TIMES * max(float(np.abs(right - log_softmax(x)).max()) for x in noisy)

    def prompt(self, i):
        """-> log-probabilities after prompt token i, tolerance"""
        return self.judged(self.plog[i], [plog[i] for plog, _ in self.noisy])

    def step(self, i):
        """-> log-probabilities of generated token i, tolerance; None if that is too close to call"""
        return None if self.first < i else self.judged(self.steps[i][0], [steps[i][0] for _, steps in self.noisy])

    def head(self, layer, head):
        """-> positions kept at the end, their scores, tolerance; None if that is too close to call"""
        at = layer * self.heads + head
        if self.first < self.last or self.close[-1][at]:
            return None
        pos, scores = self.steps[-1][1][layer][head]
        by = sorted(range(len(pos)), key=lambda i: pos[i])
        return [pos[i] for i in by], [scores[i] for i in by], self.tol[-len(self.close[-1]) + at]
