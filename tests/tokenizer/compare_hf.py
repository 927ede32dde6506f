#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `penstock tokenize` with Hugging Face's tokenizers, for people who have them (pip install transformers).

  compare_hf.py compare PENSTOCK MODEL FILE...   whole files, there and back; exit 77 (skipped) without transformers or data
  compare_hf.py opt PENSTOCK MODEL VOCAB MERGES FILE...   the same with another vocabulary and MODEL's other files
  compare_hf.py golden MODEL OUT.json            writes the expected ids that tokenizer_test.c reads
  compare_hf.py classes OUT.txt                  writes which code points are letters, numbers, space to tokenizers' regex
"""
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

SKIP = 77


def need(name):
    try:
        return __import__(name)
    except ImportError:
        print(f"skipped: the Python package {name} is not installed")
        sys.exit(SKIP)


def hugging_face(model):
    os.environ["HF_HUB_OFFLINE"] = "1"
    return need("transformers").AutoTokenizer.from_pretrained(model)


def penstock(exe, *args):
    return subprocess.run([exe, "tokenize", *args], check=True, stdout=subprocess.PIPE).stdout


def compare(exe, model, files):
    files = [f for f in files if os.path.isfile(f)]
    if not files or not os.path.isfile(exe):
        print("skipped: no such files")
        return SKIP
    hf, bad = hugging_face(model), 0
    for f in files:
        data = open(f, "rb").read()
        want = hf(data.decode("utf-8"))["input_ids"]
        got = json.loads(penstock(exe, model, f))
        at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
        same = got == want
        with tempfile.NamedTemporaryFile("w", suffix=".json") as ids:
            ids.write(json.dumps(got))
            ids.flush()
            back = penstock(exe, model, ids.name, "--decode", "--no-special") == data
        print(f"{f}: {len(want)} ids, {'equal' if same else f'DIFFERENT at {at}'}, {'back' if back else 'NOT BACK'}")
        bad += not (same and back)
    return 1 if bad else 0


def compare_opt(exe, model, vocab, merges, files):
    if not (os.path.isfile(vocab) and os.path.isfile(merges)):
        print("skipped: no such vocabulary")
        return SKIP
    with tempfile.TemporaryDirectory() as folder:
        for source, name in [(vocab, "vocab.json"), (merges, "merges.txt")] + [
                (os.path.join(model, n), n) for n in ("config.json", "tokenizer_config.json", "special_tokens_map.json")]:
            shutil.copyfile(source, os.path.join(folder, name))
        return compare(exe, folder, files)


def texts():
    fixed = [
        "", " ", "  ", "a", "Hello world", " Hello  world ", "it's I'LL we'd you're they've 'S 'x ''s ' t",
        "a\n\nb\r\nc\t\td \n e", "1234567890 12.5% ²½Ⅷ", "tabs\t and\u00a0nbsp\u3000wide\u2028line\u180emvs\x85nel\x1cfs",
        "Füße naïve œuvre Æsir", "Привет, мир! Ελλάδα שלום مرحبا", "日本語のテキスト 한국어 ไทย हिन्दी", "🦙🦙 👩‍👩‍👧 🏳️‍🌈",
        "e\u0301 combining a\u0328\u0301", "\x00nul\x00\x00 in text", "</s>", "a</s>b", " </s> <pad>x</s></s>", "<s><unk><mask></s",
        "<|endoftext|>", "x" * 200, " " * 100, "ab" * 70, "!?" * 40 + "\n" * 33, "\U000105c0\U00016d40x \U0002ebf0\u1c89 \U0001e5f1",
        "\ufeffbom \ufffd \U0010ffff\ue000", "int main(void) { return a[0]->b != 0x1F; } // done", "Penstock's 3rd TEST...(really)",
    ]
    rnd = random.Random(1)
    pools = ["ab 'sdtremvl\n", "the quick brown fox  \n,.'", [chr(c) for c in range(0x20, 0x600)],
             [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000], ["</s>", "<pad>", " ", "\n", "x", "<", "é"]]
    return fixed + ["".join(rnd.choice(pools[i % len(pools)]) for _ in range(rnd.randrange(1, 40))) for i in range(100)]


def golden(model, out):
    hf = hugging_face(model)
    rows = [{"text": t, "ids": hf(t)["input_ids"]} for t in texts()]
    with open(out, "w", encoding="ascii") as f:
        f.write("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")
    return 0


def classes(out):
    pre = need("tokenizers").pre_tokenizers.ByteLevel(add_prefix_space=False)

    def of(c):
        for before, name in (("a", "L"), ("1", "N"), ("!", "O")):
            if len(pre.pre_tokenize_str(before + chr(c))) == 1:
                return name
        return "S"

    ranges = []
    for c in range(0x110000):
        k = "O" if 0xD800 <= c < 0xE000 else of(c)
        if ranges and ranges[-1][0] == k:
            ranges[-1][2] = c
        else:
            ranges.append([k, c, c])
    with open(out, "w", encoding="ascii") as f:
        f.writelines(f"{k} {a:x} {b:x}\n" for k, a, b in ranges if k != "O")
    return 0


def main():
    cmd, args = sys.argv[1:2], sys.argv[2:]
    if cmd == ["compare"] and len(args) > 2:
        return compare(args[0], args[1], args[2:])
    if cmd == ["opt"] and len(args) > 4:
        return compare_opt(*args[:4], args[4:])
    if cmd == ["golden"] and len(args) == 2:
        return golden(*args)
    if cmd == ["classes"] and len(args) == 1:
        return classes(*args)
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main())
