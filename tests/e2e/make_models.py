#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tiny OPT models of odd shapes, in Hugging Face layout, the same bytes everywhere (standard library only).

    make_models.py FOLDER [NAME ...]     writes FOLDER/NAME for each name (default: all)

Weights are random but peaked (attention logits have a spread of 2 to 3), so that heavy hitters exist and greedy tokens are
far apart. tests/data/golden-NAME.json holds what the oracle says about them.
"""
import json, os, random, struct, sys

# hidden, heads, ffn, vocab, layers, positions, dtype, prefix; embed: the width of project_in; post: norms after (default with embed);
# bias, final_norm: False leaves them out; tied: False gives the head values of its own; lm_head: a copy of the embedding is in the
# file, as older checkpoints have it; sharp: attention logits this many times wider; shards
MODELS = {
    "pre-f16": dict(hidden=48, heads=3, ffn=100, vocab=257, layers=3, positions=128, dtype="F16"),
    "post-bf16": dict(hidden=48, heads=4, ffn=100, vocab=131, layers=2, positions=96, dtype="BF16", embed=20, prefix="decoder."),
    "pre-f32": dict(hidden=40, heads=5, ffn=72, vocab=300, layers=4, positions=160, dtype="F32", prefix="decoder."),
    "shards-bf16": dict(hidden=64, heads=2, ffn=130, vocab=211, layers=4, positions=128, dtype="BF16", shards=2, lm_head=True),
    "d80-f16": dict(hidden=160, heads=2, ffn=96, vocab=97, layers=2, positions=128, dtype="F16"),
}
EOS = 2
SIZE = {"F16": 2, "BF16": 2, "F32": 4}


def encode(values, dtype):
    if dtype == "F32":
        return struct.pack(f"<{len(values)}f", *values)
    if dtype == "F16":
        return struct.pack(f"<{len(values)}e", *values)
    out = []
    for (u,) in struct.iter_unpack("<I", struct.pack(f"<{len(values)}f", *values)):
        out.append((u + 0x7FFF + ((u >> 16) & 1)) >> 16)
    return struct.pack(f"<{len(out)}H", *out)


def post_norm(m):
    return m.get("post", "embed" in m)


def tensors(m, seed):
    """-> [(name, shape, values)]; values are dyadic enough that every platform rounds them alike."""
    rng = random.Random(seed)
    pre = m.get("prefix", "model.decoder.")
    h, f, e, sharp = m["hidden"], m["ffn"], m.get("embed", m["hidden"]), m.get("sharp", 1) ** 0.5
    out = []

    def put(name, shape, std, mean=0.0):
        n = 1
        for s in shape:
            n *= s
        # A sum of uniforms has no logarithm or cosine in it: no libm decides about the last bit.
        out.append((pre + name, shape, [mean + std * 1.7320508 * (rng.random() + rng.random() + rng.random() + rng.random() - 2)
                                        for _ in range(n)]))

    def linear(name, n_out, n_in, gain):
        put(name + ".weight", [n_out, n_in], gain * n_in ** -0.5)
        if m.get("bias", True):
            put(name + ".bias", [n_out], 0.1)

    def norm(name):
        put(name + ".weight", [h], 0.15, 1.0)
        put(name + ".bias", [h], 0.1)

    put("embed_tokens.weight", [m["vocab"], e], 3.5 * e ** -0.5)
    put("embed_positions.weight", [m["positions"] + 2, h], 0.35)
    if e != h:
        put("project_in.weight", [h, e], 1.3 * e ** -0.5)
        put("project_out.weight", [e, h], 1.0 * h ** -0.5)
    for i in range(m["layers"]):
        p = f"layers.{i}."
        linear(p + "self_attn.q_proj", h, h, 1.6 * sharp)
        linear(p + "self_attn.k_proj", h, h, 1.6 * sharp)
        linear(p + "self_attn.v_proj", h, h, 1.0)
        linear(p + "self_attn.out_proj", h, h, 0.8)
        norm(p + "self_attn_layer_norm")
        linear(p + "fc1", f, h, 1.3)
        linear(p + "fc2", h, f, 0.9)
        norm(p + "final_layer_norm")
    if not post_norm(m) and m.get("final_norm", True):
        norm("final_layer_norm")
    if not m.get("tied", True):
        put("lm_head.weight", [m["vocab"], e], 3.5 * e ** -0.5)
        out[-1] = ("lm_head.weight", *out[-1][1:])
    if m.get("lm_head"):
        out.append(("lm_head.weight", out[0][1], out[0][2]))
    return out


def write_safetensors(path, dtype, ts):
    head, blobs, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, shape, values in ts:
        raw = encode(values, dtype)
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(raw)]}
        blobs.append(raw)
        at += len(raw)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))
    return at


def make(folder, name):
    return write_model(os.path.join(folder, name), MODELS[name], list(MODELS).index(name) + 1)


def write_model(d, m, seed):
    """Writes the model into folder d. -> d"""
    os.makedirs(d, exist_ok=True)
    dt = {"F16": "float16", "BF16": "bfloat16", "F32": "float32"}[m["dtype"]]
    cfg = {
        "_remove_final_layer_norm": not m.get("final_norm", True), "activation_function": "relu", "architectures": ["OPTForCausalLM"],
        "attention_dropout": 0.0, "bos_token_id": 2, "do_layer_norm_before": not post_norm(m), "dropout": 0.1,
        "torch_dtype": dt, "enable_bias": m.get("bias", True), "eos_token_id": EOS, "ffn_dim": m["ffn"], "hidden_size": m["hidden"],
        "init_std": 0.02, "layer_norm_elementwise_affine": True, "layerdrop": 0.0, "max_position_embeddings": m["positions"],
        "model_type": "opt", "num_attention_heads": m["heads"], "num_hidden_layers": m["layers"], "pad_token_id": 1,
        "tie_word_embeddings": m.get("tied", True), "use_cache": True, "vocab_size": m["vocab"], "word_embed_proj_dim": m.get("embed", m["hidden"]),
    }
    with open(os.path.join(d, "config.json"), "w") as f:
        json.dump(cfg, f, indent=1)
    ts = tensors(m, seed)
    k = m.get("shards", 1)
    if k == 1:
        write_safetensors(os.path.join(d, "model.safetensors"), m["dtype"], ts)
        return d
    index, total, per = {}, 0, -(-len(ts) // k)
    for i in range(k):
        file = f"model-{i + 1:05}-of-{k:05}.safetensors"
        part = ts[i * per:(i + 1) * per]
        total += write_safetensors(os.path.join(d, file), m["dtype"], part)
        index.update({t[0]: file for t in part})
    with open(os.path.join(d, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": index}, f, indent=1)
    return d


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for name in sys.argv[2:] or MODELS:
        print(make(sys.argv[1], name))


if __name__ == "__main__":
    main()
