#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the PyTorch files that the checkpoint tests read, with the real torch.save. Run by hand when a case is added:

    python3 -m venv v && v/bin/pip install torch && v/bin/python tests/checkpoint/make_fixtures.py

Element i of a tensor is the same small number as tiny_value() of tiny_model.c, so that the tests need no second copy.
"""
import collections
import json
import os
import pathlib
import zipfile

import torch

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "torch"
CFG = dict(model_type="opt", num_hidden_layers=1, hidden_size=8, ffn_dim=16, num_attention_heads=2, vocab_size=19,
           max_position_embeddings=6, torch_dtype="float16")
H, F, V, P = 8, 16, 19, 8


def values(name, shape, dtype):
    h = 17
    for c in name.encode():
        h = (h * 31 + c) & 0xFFFFFFFF
    n = 1
    for d in shape:
        n *= d
    v = [((((h + i) & 0xFFFFFFFF) * 2654435761 & 0xFFFFFFFF) >> 25) - 64 for i in range(n)]
    return (torch.tensor(v, dtype=torch.float32) / 64).to(dtype).reshape(shape)


def shapes():
    d = "model.decoder."
    yield d + "embed_tokens.weight", (V, H)
    yield d + "embed_positions.weight", (P, H)
    for n in ("weight", "bias"):
        yield d + "final_layer_norm." + n, (H,)
    for m, s in (("self_attn.k_proj", (H, H)), ("self_attn.v_proj", (H, H)), ("self_attn.q_proj", (H, H)),
                 ("self_attn.out_proj", (H, H)), ("fc1", (F, H)), ("fc2", (H, F))):
        yield d + f"layers.0.{m}.weight", s
        yield d + f"layers.0.{m}.bias", s[:1]
    for m in ("self_attn_layer_norm", "final_layer_norm"):
        yield d + f"layers.0.{m}.weight", (H,)
        yield d + f"layers.0.{m}.bias", (H,)


def state(dtype=torch.float16):
    return collections.OrderedDict((n, values(n, s, dtype)) for n, s in shapes())


def folder(name):
    d = OUT / name
    d.mkdir(parents=True, exist_ok=True)
    (d / "config.json").write_text(json.dumps(CFG))
    return d


def one(name, obj, **kw):
    torch.save(obj, folder(name) / "pytorch_model.bin", **kw)


class Code:
    def __reduce__(self):
        return os.system, ("echo executed > /tmp/penstock-executed",)


def main():
    one("f16", state())
    one("bf16", state(torch.bfloat16))
    one("f32", state(torch.float32))
    one("dict", dict(state()))
    for p in (3, 4, 5):
        one(f"protocol{p}", state(), pickle_protocol=p)

    # Parameters, a module's _metadata, the tied head as the same storage, an old version tensor.
    s = state()
    for k in list(s):
        s[k] = torch.nn.Parameter(s[k])
    s["lm_head.weight"] = s["model.decoder.embed_tokens.weight"]
    s["model.decoder.version"] = torch.tensor([3.0])
    s._metadata = collections.OrderedDict([("", {"version": 1})])
    one("parameters", s)

    # Vectors that are slices of one storage, and the names of the oldest checkpoints.
    s = state()
    flat = torch.cat([v.reshape(-1) for v in s.values()])
    at, old = 0, collections.OrderedDict()
    for k, v in s.items():
        old[k.removeprefix("model.")] = flat[at:at + v.numel()].view(v.shape)
        at += v.numel()
    one("shared", old)

    # An extra that is no matrix does no harm.
    s = state()
    s["something.else"] = torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)
    one("extra", s)

    # Views: transposed; a slice of wider rows; every second and third element of a larger one; an output table that is another view.
    s = state()
    d = "model.decoder."
    s[d + "embed_tokens.weight"] = s[d + "embed_tokens.weight"].t().contiguous().t()
    s["lm_head.weight"] = values(d + "embed_tokens.weight", (V, H), torch.float32).t().contiguous().t()
    for k in ("fc1", "self_attn.q_proj"):
        k = d + f"layers.0.{k}.weight"
        s[k] = s[k].t().contiguous().t()
    qkv = torch.cat([s[d + f"layers.0.self_attn.{c}_proj.weight"] for c in "kv"], 1)
    for i, c in enumerate("kv"):
        s[d + f"layers.0.self_attn.{c}_proj.weight"] = qkv[:, H * i:H * (i + 1)]
    for k, flip in (("fc2", False), ("self_attn.out_proj", True)):
        k = d + f"layers.0.{k}.weight"
        v = s[k].t() if flip else s[k]
        big = torch.full((2 * v.shape[0] + 1, 3 * v.shape[1] + 2), 77.0, dtype=torch.float16)
        big[1::2, 2::3] = v
        s[k] = big[1::2, 2::3].t() if flip else big[1::2, 2::3]
    k = d + "layers.0.fc1.bias"
    s[k] = torch.stack([s[k], s[k] + 1], 1)[:, 0]
    one("strided", s)

    d = folder("shards")
    s = state()
    names = list(s)
    files = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]
    for i, f in enumerate(files):
        torch.save({n: s[n] for n in names[i::2]}, d / f)
    (d / "pytorch_model.bin.index.json").write_text(json.dumps(
        {"metadata": {"total_size": 1}, "weight_map": {n: files[i % 2] for i, n in enumerate(names)}}))

    one("legacy", state(), _use_new_zipfile_serialization=False)
    one("nested", {"model": state(), "step": 7})
    one("tensor", torch.ones(3))
    s = state()
    s["payload"] = Code()
    one("code", s)
    s = state()
    s["model.decoder.layers.0.fc2.bias"] = 3
    one("scalar", s)
    s = state()
    s["model.decoder.layers.0.fc2.bias"] = s["model.decoder.layers.0.fc2.bias"].to(torch.int32)
    one("ints", s)

    src = OUT / "f16" / "pytorch_model.bin"
    dst = folder("compressed") / "pytorch_model.bin"
    with zipfile.ZipFile(src) as a, zipfile.ZipFile(dst, "w", zipfile.ZIP_DEFLATED) as b:
        for n in a.namelist():
            b.writestr(n, a.read(n))
    dst = folder("bigendian") / "pytorch_model.bin"
    with zipfile.ZipFile(src) as a, zipfile.ZipFile(dst, "w") as b:
        for n in a.namelist():
            b.writestr(n, b"big" if n.endswith("byteorder") else a.read(n))
    # The same content as a plain zip without zip64 records.
    dst = folder("plainzip") / "pytorch_model.bin"
    with zipfile.ZipFile(src) as a, zipfile.ZipFile(dst, "w") as b:
        b.comment = b"a comment with PK\x05\x06 in it"
        for n in a.namelist():
            b.writestr(n, a.read(n))


if __name__ == "__main__":
    main()
