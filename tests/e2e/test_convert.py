# SPDX-License-Identifier: Apache-2.0
"""convert, inspect, doctor, tokenize; checkpoints that are damaged or not ours."""
import fcntl, json, os, random, re, shutil, struct, zipfile

from harness import SHARED, TOP, cases, same, smoke, token_job
import make_models


def read_header(path):
    with open(path, "rb") as f:
        n, = struct.unpack("<Q", f.read(8))
        return json.loads(f.read(n)), 8 + n


def weights(folder):
    return [os.path.join(folder, f) for f in sorted(os.listdir(folder)) if f.endswith(".safetensors")]


@smoke
@cases(**{n: n for n in make_models.MODELS})
def test_packed_file(t, name):
    """What we write is plain safetensors: contiguous, 4 KiB aligned, the source's values, each tied tensor once."""
    dst = t.model(name)
    files = weights(dst)
    t.check(files and all(os.path.basename(f).startswith("weights-") for f in files), f"files {os.listdir(dst)}")
    m = make_models.MODELS[name]
    want = {n: (s, make_models.encode(v, m["dtype"])) for n, s, v in make_models.tensors(m, list(make_models.MODELS).index(name) + 1)}
    short = {n.split("decoder.")[-1]: v for n, v in want.items() if n != "lm_head.weight"}
    seen = {}
    for path in files:
        head, base = read_header(path)
        t.check(all(isinstance(v, str) for v in head.pop("__metadata__").values()), "metadata are strings")
        data, at = open(path, "rb").read(), 0
        for n, x in sorted(head.items(), key=lambda kv: kv[1]["data_offsets"]):
            a, b = x["data_offsets"]
            t.eq(a, at, f"{n} follows the one before it")
            at = b
            if not n.startswith("_pad"):
                t.eq((base + a) % 4096, 0, f"{n} is aligned")
                seen[n.split("decoder.")[-1]] = (x["shape"], data[base + a:base + b])
        t.eq(base + at, len(data), "the file's length")
    t.eq(sorted(seen), sorted(short), "tensors")
    for n in short:
        t.eq(seen[n][0], short[n][0], f"shape of {n}")
        t.check(seen[n][1] == short[n][1], f"values of {n}")


def test_dtypes(t):
    """--dtype changes the stored type; f32 -> f32 is exact, and bf16 is stored as f32 without loss."""
    job = token_job(211, n=5)
    want = t.generate(t.model("shards-bf16"), job)
    t.run("convert", t.hf("shards-bf16"), "wide", "--dtype", "f32")
    same(t, t.generate(t.path("wide"), job), want, "bf16 as f32")
    for d in ("f16", "bf16", "f32"):
        t.run("convert", t.hf("pre-f32"), f"p-{d}", "--dtype", d)
        head, _ = read_header(weights(t.path(f"p-{d}"))[0])
        t.eq({v["dtype"] for k, v in head.items() if "weight" in k and "_pad" not in k}, {d.upper()}, "dtype")


def edit_tensor(path, name, fn):
    head, base = read_header(path)
    a, b = next(v["data_offsets"] for k, v in head.items() if k.endswith(name))
    with open(path, "r+b") as f:
        f.seek(base + a)
        data = fn(bytearray(f.read(b - a)))
        f.seek(base + a)
        f.write(data)


def test_too_big_for_f16(t):
    """A value that f16 cannot hold is refused, naming the tensor."""
    src = t.copy_hf("pre-f32")
    edit_tensor(os.path.join(src, "model.safetensors"), "layers.2.fc1.weight", lambda d: struct.pack("<f", 70000.0) + d[4:])
    t.run("convert", src, "dst", "--dtype", "f16", rc=1).says("layers.2.fc1.weight", "f16")
    t.check(not t.exists("dst"), "something is left")
    t.run("convert", src, "dst")


def test_overwrite(t):
    t.run("convert", t.hf("pre-f16"), "dst")
    t.run("convert", t.hf("d80-f16"), "dst", rc=(1, 2)).says("--overwrite")
    t.write("dst/notes.txt", "mine")
    t.write("dst/merges.txt", "of the earlier model")
    os.mkdir(t.path("dst/folder"))
    t.write("dst/folder/x", "mine, too")
    new = sorted(os.listdir(t.model("d80-f16")))
    t.run("convert", t.hf("d80-f16"), "dst", "--overwrite")
    t.eq(sorted(os.listdir(t.path("dst"))), sorted(new + ["notes.txt", "folder"]), "what the user put there stays, what convert writes is the new model's")
    t.eq((t.read("dst/notes.txt"), t.read("dst/folder/x"), os.listdir(t.dir)), (b"mine", b"mine, too", ["dst"]), "files")
    t.eq(json.load(open(t.path("dst/config.json")))["vocab_size"], 97, "the new model")
    os.makedirs(t.path("dst.partial.1"))
    t.write("dst.partial.1/config.json", "of a run that was killed")
    t.run("convert", t.hf("d80-f16"), "dst", "--overwrite").says("dst.partial.1 was left over", "removed")
    t.check(not t.exists("dst.partial.1"), "only convert's files were in there")
    os.makedirs(t.path("dst.partial.1"))
    t.write("dst.partial.1/config.json", "of a run that was killed")
    lock = os.open(t.path("dst.partial.1"), os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    t.check("move them" not in t.run("convert", t.hf("d80-f16"), "dst", "--overwrite").says("dst.partial.1", "remove it").err, "its maker lives")
    os.close(lock)
    shutil.copytree(t.path("dst"), t.path("dst.partial.2"), ignore=lambda *a: ["notes.txt", "folder"])
    t.write("dst.partial.1/notes.txt", "mine")
    t.run("convert", t.hf("d80-f16"), "dst", "--overwrite").says("dst.partial.2", "remove it")
    t.check(t.exists("dst.partial.2/config.json"), "a whole model stays")
    shutil.rmtree(t.path("dst.partial.2"))
    t.run("convert", t.hf("d80-f16"), "dst", "--overwrite").says("dst.partial.1", "move them away, then remove it")
    os.makedirs(t.path("dst.old.1"))
    os.makedirs(t.path("dst.old.kept"))
    err = t.run("convert", t.hf("d80-f16"), "dst", "--overwrite").says("dst.old.1: an earlier DST", "remove it").err
    t.check("dst.old.kept" not in err, "a folder of another name is not convert's")
    os.mkdir(t.path("mine"))
    t.write("mine/file.txt", "precious")
    t.run("convert", t.hf("pre-f16"), "mine", rc=(1, 2))
    t.eq(t.read("mine/file.txt"), b"precious", "a folder that is no model")


def test_no_folder(t):
    """What is not there is named: the folder of DST, not one that was to be made in it; and a packed model's weights file."""
    for args in (["convert", t.hf("pre-f16"), "none/dst"], ["convert", "--dummy", os.path.join(t.hf("pre-f16"), "config.json"), "none/dst"]):
        err = t.run(*args, rc=1).says("none/dst cannot be made", "its folder none is not there").err
        t.check("partial" not in err, f"says {err!r}")
    t.write("file", "x")
    t.run("convert", t.hf("pre-f16"), "file/dst", rc=1).says("file/dst", "Not a directory")
    shutil.copytree(t.model("pre-f16"), t.path("dst"))
    os.remove(t.path("dst/weights-00001-of-00001.safetensors"))
    t.run("generate", "dst", t.job([{"prompt": [2]}]), "-o", "out.jsonl", rc=1).says("dst: no weights", "weights-00001-of-00001.safetensors")


def test_killed_packing(t):
    """What a killed packing left in the cache is removed by the next one, of whatever model; what a live one is making is not."""
    job = t.job([{"prompt": [2, 5]}])
    for name in ("opt-a-00ff.partial.7", "opt-b-00ff.partial.4000000.1", "opt-c-00ff.partial.9", "opt-d-00ff.partial.x", "opt-e-00ff"):
        os.makedirs(t.path(f"packed/{name}"))
        t.write(f"packed/{name}/weights-00001-of-00001.safetensors", bytes(5000))
    lock = os.open(t.path("packed/opt-c-00ff.partial.9"), os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    run = lambda: t.run("generate", t.hf("pre-f16"), job, "-o", "out.jsonl", "--no-resume", "--pack-dir", "packed").err
    err = run()
    t.check("opt-a-00ff.partial.7 was left over" in err and "opt-c" not in err, f"says {err!r}")
    left = [x for x in os.listdir(t.path("packed")) if x.startswith("opt-")]
    t.eq(sorted(left), ["opt-c-00ff.partial.9", "opt-d-00ff.partial.x", "opt-e-00ff"], "what stays")
    os.close(lock)
    t.check("left over" not in run(), "nothing is packed the second time")


def test_config_is_the_packed_one(t):
    """A packed model's weights, used as another config.json says, would give other results: refused by all that open it. Packs of earlier versions do not know."""
    job = token_job(257, n=3)
    want, one = t.generate(t.model("pre-f16"), job), t.path("in.jsonl")
    t.run("convert", t.hf("pre-f16"), "dst")
    config, weights = json.load(open(t.path("dst/config.json"))), "dst/weights-00001-of-00001.safetensors"
    for field, was, now in (("num_attention_heads", "3", 4), ("do_layer_norm_before", "1", False), ("vocab_size", "257", 256)):
        t.write("dst/config.json", json.dumps(config | {field: now}))
        says = (f"dst/config.json says {field}={int(now)}", f"{weights} was packed with {field}={was}", "convert the model again")
        for args in (["generate", "dst", one, "-o", "x.jsonl"], ["generate", "dst", one, "-o", "x.jsonl", "--dry-run"], ["inspect", "dst"], ["inspect", "dst", "--json"],
                     ["inspect", "dst", "--verify"], ["plan", "dst", "--hardware", os.path.join(TOP, "configs", "hardware", "t4-gcp.json")], ["bench", "dst", "--requests", "2"],
                     ["convert", "dst", "dst2"]):
            t.run(*args, rc=1).says(*says)
        t.eq(sorted(os.listdir(t.dir)), ["dst", "in.jsonl", "out.jsonl"], "nothing is made")
    t.write("dst/config.json", json.dumps(config | {"eos_token_id": 5, "_name_or_path": "mine", "torch_dtype": "float32"}))
    t.run("inspect", "dst").says("mine")
    t.write("dst/config.json", json.dumps(config))
    data = t.read(weights)
    old = re.sub(rb',\\"shape\\":\\"[a-z0-9_= ]*\\"', lambda m: b" " * len(m[0]), data)
    t.check(old != data and len(old) == len(data), "the header has a shape")
    t.write(weights, old)
    same(t, t.generate(t.path("dst"), job), want, "a pack without a shape")
    t.run("convert", "dst", "dst2")
    same(t, t.generate(t.path("dst2"), job), want, "packed from it")


def test_links_are_followed(t):
    """Hugging Face's cache holds links to blobs."""
    src = t.copy_hf("pre-f16")
    os.mkdir(t.path("blobs"))
    for f in os.listdir(src):
        os.rename(os.path.join(src, f), t.path(f"blobs/{f}.blob"))
        os.symlink(f"../blobs/{f}.blob", os.path.join(src, f))
    t.run("convert", src, "dst")
    job = token_job(257, n=4)
    same(t, t.generate(t.path("dst"), job), t.generate(t.model("pre-f16"), job), "through links")
    os.remove(t.path("blobs/model.safetensors.blob"))
    t.run("convert", src, "dst2", rc=1).says("model.safetensors is there", "a file that is missing")


def rewrite(src, change):
    """Writes model.safetensors anew with its header changed."""
    path = os.path.join(src, "model.safetensors")
    head, base = read_header(path)
    data = open(path, "rb").read()[base:]
    head, data = change(head, data) or (head, data)
    text = json.dumps(head).encode() if isinstance(head, dict) else head
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


FC1 = "model.decoder.layers.1.fc1.weight"


def drop(h, d): del h[FC1]
def renamed(h, d): h["something.else"] = h.pop(FC1)
def other_shape(h, d): h[FC1]["shape"] = [48, 100]
def bad_dtype(h, d): h[FC1]["dtype"] = "Q4"
def overlap(h, d): h[FC1]["data_offsets"] = [x - 96 for x in h[FC1]["data_offsets"]]
def beyond(h, d): h[FC1]["data_offsets"] = [x + len(d) for x in h[FC1]["data_offsets"]]
def backwards(h, d): h[FC1]["data_offsets"] = h[FC1]["data_offsets"][::-1]
def negative(h, d): h[FC1]["data_offsets"] = [-9600, 0]
def huge_shape(h, d): h[FC1]["shape"] = [1 << 62, 1 << 62]
def cut(h, d): return h, d[:-100]
def no_json(h, d): return b"{broken", d
def header_list(h, d): return b"[]", d
def twice(h, d): return json.dumps(h)[:-1].encode() + b', "' + FC1.encode() + b'": ' + json.dumps(h[FC1]).encode() + b"}", d
def int_shape(h, d): h[FC1]["shape"] = 4800
def no_offsets(h, d): del h[FC1]["data_offsets"]


@cases(**{f.__name__: f for f in (drop, renamed, other_shape, bad_dtype, overlap, beyond, backwards, negative, huge_shape, cut, no_json, header_list, twice, int_shape, no_offsets)})
def test_bad_safetensors(t, change):
    src = t.copy_hf("pre-f16")
    rewrite(src, change)
    words = ["model.safetensors"] + ([] if change in (no_json, header_list, cut) else ["layers.1.fc1.weight"])
    if change is drop:      # nothing in the file names it: its neighbours are
        words = ["model.safetensors", "a gap", "layers.1.fc1.bias"]
    if change is renamed:
        words = ["layers.1.fc1.weight"]
    t.run("convert", src, "dst", rc=1).says(*words)
    t.eq(sorted(os.listdir(t.dir)), ["hf"], "something was written")


def test_bad_header_lengths(t):
    src = t.copy_hf("pre-f16")
    path = os.path.join(src, "model.safetensors")
    data = open(path, "rb").read()
    for n in (0, 1, 101 << 20, 1 << 40, (1 << 64) - 1, len(data)):
        open(path, "wb").write(struct.pack("<Q", n) + data[8:])
        t.run("convert", src, "dst", rc=1).says("model.safetensors")
    for k in (0, 3, 8, 200):
        open(path, "wb").write(data[:k])
        t.run("convert", src, "dst", rc=1).says("model.safetensors")
    with open(path, "wb") as f:      # a sparse file of 200 MB that says its header is 150 MB
        f.write(struct.pack("<Q", 150 << 20))
        f.truncate(200 << 20)
    r = t.run("convert", src, "dst", rc=1).says("model.safetensors")
    t.check(r.maxrss < 100 << 20 or t.shared.slow_by > 1, f"peak {r.maxrss >> 20} MiB")


def test_missing_shard(t):
    src = t.copy_hf("shards-bf16")
    os.remove(os.path.join(src, "model-00002-of-00002.safetensors"))
    t.run("convert", src, "dst", rc=1).says("model-00002-of-00002.safetensors")
    src = t.copy_hf("shards-bf16", "hf2")
    p = os.path.join(src, "model.safetensors.index.json")
    d = json.load(open(p))
    k = next(k for k in d["weight_map"] if k.endswith("layers.3.fc2.bias"))
    del d["weight_map"][k]
    json.dump(d, open(p, "w"))
    t.run("convert", src, "dst", rc=(0, 1))         # the tensor is in the shard all the same: either is an answer
    if t.exists("dst"):
        shutil.rmtree(t.path("dst"))
    d["weight_map"][k] = "../../../etc/passwd"
    json.dump(d, open(p, "w"))
    t.run("convert", src, "dst", rc=1)


CONFIG = {
    "family": (dict(model_type="gpt2"), ["gpt2"]),
    "activation": (dict(activation_function="gelu"), ["gelu"]),
    "no layers": (dict(num_hidden_layers=None), ["num_hidden_layers"]),
    "layers text": (dict(num_hidden_layers="3"), ["num_hidden_layers"]),
    "layers huge": (dict(num_hidden_layers=1 << 40), ["num_hidden_layers"]),
    "layers negative": (dict(num_hidden_layers=-1), ["num_hidden_layers"]),
    "heads": (dict(num_attention_heads=7), ["num_attention_heads"]),
    "heads zero": (dict(num_attention_heads=0), ["num_attention_heads"]),
    "hidden other": (dict(hidden_size=51), []),
    "vocab other": (dict(vocab_size=999), ["embed_tokens"]),
    "positions other": (dict(max_position_embeddings=64), ["embed_positions"]),
    "more layers": (dict(num_hidden_layers=4), ["layers.3."]),
}


@cases(**CONFIG)
def test_bad_config(t, value):
    change, words = value
    src = t.copy_hf("pre-f16")
    p = os.path.join(src, "config.json")
    d = json.load(open(p))
    d.update(change)
    json.dump({k: v for k, v in d.items() if v is not None}, open(p, "w"))
    t.run("convert", src, "dst", rc=(1, 2)).says(*words)
    t.check(not t.exists("dst"), "something was written")


def test_no_checkpoint(t):
    os.mkdir(t.path("empty"))
    t.run("convert", "empty", "dst", rc=(1, 2)).says("config.json")
    t.run("convert", "nowhere", "dst", rc=(1, 2)).says("nowhere")
    t.write("file", "x")
    t.run("convert", "file", "dst", rc=(1, 2)).says("file")
    src = t.copy_hf("pre-f16")
    os.remove(os.path.join(src, "model.safetensors"))
    t.run("convert", src, "dst", rc=(1, 2)).says("safetensors")
    t.write("hf/config.json", "{")
    t.run("convert", src, "dst", rc=(1, 2)).says("config.json")


# ---------------------------------------------------------------- PyTorch files, written here without PyTorch

def row_major(shape):
    strides, acc = [], 1
    for s in reversed(shape):
        strides.insert(0, acc)
        acc *= s
    return strides


def pickled(tensors, evil=None, key_of=str):
    """A protocol-2 pickle of {name: tensor} as torch.save writes it, by hand: opcodes only. A tensor: name, shape, elements of its storage, and
    where it is a view of that, offset and strides."""
    out = bytearray(b"\x80\x02}(")

    def text(s):
        raw = s.encode()
        return b"X" + struct.pack("<I", len(raw)) + raw

    def num(n):
        return b"K" + bytes([n]) if n < 256 else b"J" + struct.pack("<i", n) if n < 1 << 31 else b"\x8a\x08" + struct.pack("<q", n)

    def tup(ns):
        return b"(" + b"".join(map(num, ns)) + b"t"

    for key, (name, shape, n, *view) in enumerate(tensors):
        offset, strides = view or (0, row_major(shape))
        out += text(name)
        out += b"ctorch._utils\n_rebuild_tensor_v2\n(("
        out += text("storage") + b"ctorch\nHalfStorage\n" + text(key_of(key)) + text("cpu") + num(n) + b"tQ"
        out += num(offset) + tup(shape) + tup(strides) + b"\x89" + b"ccollections\nOrderedDict\n)Rt" + b"R"
    out += b"u"
    return bytes(out + (evil or b"") + b".")


def write_bin(path, name="pre-f16", **kw):
    m = make_models.MODELS[name]
    ts = make_models.tensors(m, list(make_models.MODELS).index(name) + 1)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        data = pickled([(n, s, len(v)) for n, s, v in ts], **kw)
        z.writestr("archive/data.pkl", data)
        for key, (_, _, v) in enumerate(ts):
            z.writestr(f"archive/data/{key}", make_models.encode(v, m["dtype"]))
        z.writestr("archive/version", "3\n")


def bin_model(t, **kw):
    src = t.copy_hf("pre-f16")
    os.remove(os.path.join(src, "model.safetensors"))
    write_bin(os.path.join(src, "pytorch_model.bin"), **kw)
    return src


@smoke
def test_pytorch_bin(t):
    job = token_job(257, n=5)
    t.run("convert", bin_model(t), "dst")
    same(t, t.generate(t.path("dst"), job), t.generate(t.model("pre-f16"), job), "from pytorch_model.bin")


def some_view(rng, shape):
    """Strides of a view, and how many elements its storage must have at least: transposed, sliced, in steps, expanded, overlapping."""
    strides = row_major(shape)
    if len(shape) == 2 and rng.random() < 0.5:                  # column by column
        strides = [1, shape[0]]
    kind = rng.randrange(4)
    if kind == 1:                                               # a slice of wider rows, or every third element
        strides = [x * rng.choice((1, 3)) + (rng.randrange(9) if x > 1 else 0) for x in strides]
    if kind == 2:                                               # expanded: one row, column or element for all
        strides[rng.randrange(len(strides))] = 0
    if kind == 3:                                               # elements that overlap
        strides = [rng.randrange(4) for _ in strides]
    return strides, sum((n - 1) * x for n, x in zip(shape, strides)) + 1


@smoke
def test_views(t):
    """Tensors that are views of their storage become what PyTorch would make of them with contiguous()."""
    m, rng = make_models.MODELS["pre-f16"], random.Random(31)
    plain, src = t.copy_hf("pre-f16", "plain"), t.copy_hf("pre-f16", "views")
    ts, storages, flat = [], [], {}
    for n, shape, _ in make_models.tensors(m, 1):
        strides, span = some_view(rng, shape)
        offset = rng.choice((0, 1, 7))
        data = [rng.randrange(-64, 65) / 64 for _ in range(offset + span + rng.choice((0, 5)))]
        grid = [(i,) for i in range(shape[0])] if len(shape) == 1 else [(i, j) for i in range(shape[0]) for j in range(shape[1])]
        flat[n] = make_models.encode([data[offset + sum(i * x for i, x in zip(at, strides))] for at in grid], "F16")
        ts.append((n, list(shape), len(data), offset, strides))
        storages.append(make_models.encode(data, "F16"))

    def write(change=lambda ts: ts):
        with zipfile.ZipFile(os.path.join(src, "pytorch_model.bin"), "w", zipfile.ZIP_STORED) as z:
            z.writestr("archive/data.pkl", pickled(change(ts)))
            for key, v in enumerate(storages):
                z.writestr(f"archive/data/{key}", v)

    def put(h, d):
        out = bytearray(d)
        for n, x in h.items():
            if n != "__metadata__":
                out[x["data_offsets"][0]:x["data_offsets"][1]] = flat[n]
        return h, bytes(out)

    os.remove(os.path.join(src, "model.safetensors"))
    rewrite(plain, put)
    write()
    t.run("convert", plain, "a")
    for threads in (1, 3):
        t.run("convert", src, "b", "--threads", threads, "--overwrite")
        a, b = (open(weights(t.path(x))[0], "rb").read()[read_header(weights(t.path(x))[0])[1]:] for x in "ab")
        t.check(a == b, f"weights differ, {threads} threads")

    # A view that reaches beyond its storage, by one element, by its offset, or so far that the sum overflows.
    k = next(i for i, x in enumerate(ts) if len(x[1]) == 2 and x[4][0] and x[4][1])
    n, shape, elems, offset, strides = ts[k]
    room = elems - 1 - offset - sum((a - 1) * x for a, x in zip(shape, strides))
    for view in ((offset + room + 1, strides), (elems, strides), (offset, [1 << 62, strides[1]]), (offset, [strides[0], (1 << 63) - 1]), ((1 << 63) - 1, strides)):
        write(lambda ts: ts[:k] + [(n, shape, elems, *view)] + ts[k + 1:])
        t.run("convert", src, "dst", rc=1).says("pytorch_model.bin", n, "reaches out of its storage")
        t.check(not t.exists("dst"), "something was written")
    write(lambda ts: ts[:k] + [(n, shape, elems, offset + room, strides)] + ts[k + 1:])
    t.run("convert", src, "dst")

    # The storage's checksum holds for its views, too.
    p = os.path.join(src, "pytorch_model.bin")
    data = bytearray(open(p, "rb").read())
    at = data.index(storages[k])
    data[at + 2 * (offset + room)] ^= 1
    open(p, "wb").write(data)
    t.run("convert", src, "dst2", rc=1).says("pytorch_model.bin", n, "checksum")
    t.check(not t.exists("dst2"), "something was written")


EVIL = {
    "os.system": (b"cos\nsystem\n(X\x0c\x00\x00\x00touch PWNED;tR", "os.system"),
    "builtins.eval": (b"cbuiltins\neval\n(X\x01\x00\x00\x001tR", "builtins.eval"),
    "reduce on a class": (b"csubprocess\nPopen\n(X\x04\x00\x00\x00truetR", "subprocess.Popen"),
    "build": (b"cposix\nsystem\n}b", "posix.system"),
    "stack global": (b"X\x02\x00\x00\x00osX\x06\x00\x00\x00system\x93(X\x01\x00\x00\x00:tR", "os.system"),
    "nested": (b"(" * 100000 + b"t" * 100000, "several things"),
    "deep lists": (b"]" * 200000 + b"a" * 199999, "several things"),
    "ext": (b"\x82\x01", "opcode 0x82"),
    "memo bomb": (b"](h\x00" * 3, "a memo entry that is not there"),
    "cut": (b"X\xff\xff\xff\x7f", "a string that is too long"),
}


@cases(**EVIL)
def test_evil_pickle(t, value):
    """A pickle that would run code, or nests without end, is refused; nothing is executed."""
    evil, why = value
    src = bin_model(t, evil=evil)
    t.run("convert", src, "dst", rc=1).says("pytorch_model.bin", why)
    t.check(not t.exists("PWNED") and not t.exists("dst"), "something was run or written")


def test_nul_in_storage_key(t):
    """A key is the whole key: what stands in front of a NUL names no storage."""
    t.run("convert", bin_model(t, key_of=lambda k: f"{k}\0x" if k == 3 else str(k)), "dst", rc=1).says("pytorch_model.bin", "storage", "not in the archive")
    t.check(not t.exists("dst"), "something was written")


def test_bad_zip(t):
    src = bin_model(t)
    p = os.path.join(src, "pytorch_model.bin")
    data = open(p, "rb").read()
    rng = random.Random(4)
    for k in range(24):
        d = bytearray(data)
        if k % 3 == 0:
            d = d[:rng.randrange(len(d))]
        elif k % 3 == 1:
            at = len(d) - 1 - rng.randrange(4000)      # in the central directory
            d[at] ^= 1 << rng.randrange(8)
        else:
            d = b"PK\x03\x04" + bytes(rng.randrange(256) for _ in range(500))
        open(p, "wb").write(d)
        if t.exists("dst"):
            shutil.rmtree(t.path("dst"))
        t.run("convert", src, "dst", rc=(0, 1))
    open(p, "wb").write(pickled([("a", [1], 1)]))      # PyTorch's format before 1.6 is not a zip
    t.run("convert", src, "dst", "--overwrite", rc=1).says("pytorch_model.bin")


# ---------------------------------------------------------------- packed models

def test_damage_is_found(t):
    """A changed byte in the packed weights is a checksum error that names tensor and offset."""
    t.run("convert", t.hf("pre-f16"), "dst")
    path = weights(t.path("dst"))[0]
    edit_tensor(path, "layers.1.fc2.weight", lambda d: d[:500] + bytes([d[500] ^ 1]) + d[501:])
    for opts in ([], ["--weights", "disk:100"], ["--verify", "always"]):
        t.run("generate", "dst", t.job([{"prompt": [2, 5]}]), "-o", "out.jsonl", *opts, rc=1).says("layers.1", "checksum", os.path.basename(path))
        t.check(not t.exists("out.jsonl"), "there is a result")


def test_damaged_packed_header(t):
    """Any byte of the packed file's header or config may be wrong: an error, or the right results."""
    t.run("convert", t.hf("pre-f16"), "dst")
    path = weights(t.path("dst"))[0]
    good, base = open(path, "rb").read(), read_header(path)[1]
    job = t.job([{"prompt": [2, 5], "max_tokens": 3}])
    want, rng = t.generate(t.path("dst"), job), random.Random(8)
    for k in range(40):
        d = bytearray(good)
        if k % 4 == 0:
            d = d[:rng.randrange(len(d))]
        else:
            d[rng.randrange(base)] ^= 1 << rng.randrange(8)
        open(path, "wb").write(d)
        got = t.generate(t.path("dst"), job, rc=(0, 1, 2, 4))
        if t.last.rc == 0:
            same(t, got, want, f"damage {k}")


def test_dummy(t):
    """Random weights from a seed: the same twice, other with another seed."""
    for i, seed in enumerate((1, 1, 2)):
        t.run("convert", "--dummy", os.path.join(TOP, "models", "demo-opt", "config.json"), f"d{i}", "--seed", seed)
    a, b, c = (open(weights(t.path(f"d{i}"))[0], "rb").read() for i in range(3))
    t.check(a == b and a != c, "seeds")
    r = t.generate(t.path("d0"), [{"prompt": [2, 5], "max_tokens": 3, "ignore_eos": True}])
    t.eq(r["r0"]["response"]["body"]["usage"]["completion_tokens"], 3, "tokens")


def test_configs(t):
    """configs/models holds all OPT sizes, and the others that can be planned for."""
    have = {f[:-5] for f in os.listdir(os.path.join(TOP, "configs", "models"))}
    want = {f"opt-{s}" for s in ("125m", "350m", "1.3b", "2.7b", "6.7b", "13b", "30b", "66b", "175b")}
    want |= {f"llama-{s}" for s in ("7b", "13b", "30b", "65b", "2-70b", "3-70b")} | {"gpt-neox-20b"}
    t.check(want <= have, f"configs: {sorted(have)}")


@cases(**{n: n for n in ("llama-7b", "gpt-neox-20b")})
def test_only_planned(t, name):
    """Families that can be planned for are neither converted nor run: said before anything is read or written."""
    config = os.path.join(TOP, "configs", "models", name + ".json")
    family = json.load(open(config))["model_type"]
    os.mkdir(t.path("src"))
    shutil.copy(config, t.path("src/config.json"))
    t.write("src/model.safetensors", "not read")
    os.mkdir(t.path("packed"))
    shutil.copy(config, t.path("packed/config.json"))
    t.write("packed/weights-00001-of-00001.safetensors", "not read")
    t.write("in.jsonl", '{"prompt": [1, 2]}\n')
    for args in (("convert", t.path("src"), "dst"), ("convert", "--dummy", config, "dst"),
                 ("generate", t.path("src"), t.path("in.jsonl"), "-o", t.path("out.jsonl")), ("generate", t.path("packed"), t.path("in.jsonl"), "-o", t.path("out.jsonl")),
                 ("inspect", t.path("src")), ("inspect", t.path("packed"))):
        t.run(*args, rc=1).says(family, "is not supported", "can be planned for")
        t.eq((t.exists("dst"), t.exists("out.jsonl")), (False, False), f"left behind by {args}")
    d = json.loads(t.run("inspect", config, "--json").out)
    t.eq((d["model"]["family"], d["model"]["activation"], "planned for" in d["warnings"][0]), (family, "other", True), "inspect CONFIG")


def test_inspect_and_doctor(t):
    m = t.model("pre-f16")
    r = t.run("inspect", m)
    t.check("48" in r.out and "opt" in r.out.lower(), "inspect says the shape")
    d = json.loads(t.run("inspect", m, "--json").out)
    t.check("48" in json.dumps(d), "--json")
    t.check(len(t.run("doctor", rc=(0, 1)).out) > 100, "doctor says little")
    json.loads(t.run("doctor", "--json", rc=(0, 1)).out)
    t.run("inspect", "nowhere", rc=(1, 2)).says("nowhere", "no such file")


def test_inspect_others(t):
    """A file that is neither model nor results is called what it is; results of which there is none yet, too."""
    m, job = t.model("pre-f16"), t.job([{"prompt": [2, 5]}])
    t.generate(m, job, "--report", "report.json", "--trace", "trace.json", "--dump-kv", "kv.jsonl")
    t.write("text", "Once upon a time, there was a prompt.\n")
    t.write("empty", "")
    t.write("late.jsonl.journal", '{"penstock_journal": 2, "job": "00"}\n')
    os.mkdir(t.path("folder"))
    top = TOP
    for name, words in ((job, "a file of requests"), ("report.json", "a report"), ("trace.json", "a timeline"), ("kv.jsonl", "--dump-kv"), ("text", "plain text"), ("empty", "is empty"),
                        ("late.jsonl.journal", "the journal of a job"), (os.path.join(top, "configs/hardware/t4-gcp.json"), "a hardware profile"),
                        (os.path.join(top, "configs/bench/ablation.json"), "a suite"), ("folder", "no model folder: it has no config.json")):
        t.run("inspect", name, rc=1).says(name, words, "" if name == "folder" else "a file of results")
    for part in ("", '{"id": "batch_re'):
        t.write("late.jsonl.part", part)
        t.run("inspect", "late.jsonl.part").says("no results so far")
        d = json.loads(t.run("inspect", "late.jsonl.part", "--json").out)
        t.eq((d["kind"], d["job"], d["records"]), ("results", None, 0), "--json")
    os.remove(t.path("late.jsonl.journal"))
    t.write("late.jsonl.part", "")
    t.run("inspect", "late.jsonl.part", rc=1).says("is empty")


# ---------------------------------------------------------------- tokenize

def test_no_tokenizer(t):
    """That only token ids will do is said when the model is packed, not first when a job fails; a SRC that is not there has no tokenizer to miss."""
    src = t.copy_hf("demo-opt")
    for name in ("vocab.json", "merges.txt"):
        os.remove(os.path.join(src, name))
    t.run("convert", src, "dst").says("warning", src, "no tokenizer files", "token ids")
    t.check("warning" not in t.run("convert", "nowhere", "dst2", rc=1).says("nowhere").err, "a tokenizer is missed in SRC that is not there")
    t.run("convert", os.path.join(src, "config.json"), "dst2", rc=1).says("config.json is not a folder", "--dummy")


def test_broken_tokenizer(t):
    """generate refuses it before a model is packed, naming the user's file; convert warns."""
    src = t.copy_hf("demo-opt")
    job = t.job([{"prompt": "It was"}])
    t.run("generate", src, job, "-o", "out.jsonl", "--pack-dir", t.path("packs"))
    for name, text, words in (("merges.txt", "a b c d\n", "merges.txt:1: expected two tokens"), ("merges.txt", None, "has vocab.json, but no merges.txt"),
                              ("tokenizer_config.json", "{", "tokenizer_config.json:1:")):
        path, was = os.path.join(src, name), t.read("hf/" + name)
        os.remove(path)
        if text:
            t.write("hf/" + name, text)
        shutil.rmtree(t.path("packs"))
        os.remove(t.path("out.jsonl"))
        r = t.run("generate", src, job, "-o", "out.jsonl", "--pack-dir", t.path("packs"), rc=1).says(src, words)
        t.check(r.err.count("\n") == 1 and not t.exists("packs") and not t.exists("out.jsonl"), f"packed all the same: {r.err!r}")
        t.run("convert", src, "dst", "--overwrite").says("warning", words, "generate refuses")
        t.run("generate", "dst", job, "-o", "out.jsonl", rc=1).says("dst", words.split(":")[0])
        t.write("hf/" + name, was)
        t.check("warning" not in t.run("convert", src, "dst", "--overwrite").err, "a tokenizer that is mended")
        t.run("generate", src, job, "-o", "out.jsonl", "--pack-dir", t.path("packs"))


def test_tokenize_round_trip(t):
    m = t.model("demo-opt")
    text = open(os.path.join(t.hf("demo-opt"), "sample.txt"), "rb").read()
    for name, data in (("sample", text), ("empty", b""), ("spaces", b"  a   b \n\n c\t"), ("nul", b"a\0b\0\0c"), ("unicode", "né 漢字 🙂 ﬁ \u200b e\u0301 İ".encode()),
                       ("digits", b"1234567890 3.14 1,000"), ("contractions", b"I'll he's we'd DON'T it's'"), ("long word", b"a" * 5000)):
        t.write("x.txt", data)
        ids = json.loads(t.run("tokenize", m, "x.txt").out)
        t.check(ids[0] == 2 and all(isinstance(i, int) for i in ids), f"{name}: begins with </s>")
        bare = json.loads(t.run("tokenize", m, "x.txt", "--no-special").out)
        t.eq(bare, ids[1:], f"{name}: --no-special")
        t.write("ids.json", json.dumps(bare))
        t.eq(t.run("tokenize", m, "ids.json", "--decode").out.encode("utf-8", "surrogateescape"), data, f"{name}: there and back")
    right = json.load(open(os.path.join(t.hf("demo-opt"), "right.json")))
    for g in right["greedy"]:
        t.write("x.txt", g["prompt"])
        t.eq(json.loads(t.run("tokenize", m, "x.txt").out), g["prompt_ids"], "the right ids")
    t.write("bad.json", "[1, 99999]")
    t.run("tokenize", m, "bad.json", "--decode", rc=(1, 2)).says("99999")
    t.run("tokenize", t.model("pre-f16"), "x.txt", rc=(1, 2)).says("tokenizer")


def gpt2_names(merges):
    """GPT-2's token names in the order of its ids: the bytes, then what each merge makes. OPT has the same tokens under other ids."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    bytes_ = [chr(b) for b in shown] + [chr(256 + i) for i in range(256 - len(shown))]
    with open(merges, encoding="utf-8") as f:
        return bytes_ + [x.rstrip("\n").replace(" ", "") for x in f if not x.startswith("#version")]


def test_tokenize_vectors(t):
    """Published token sequences for this BPE's splitting rules, when they are beside this checkout."""
    d = os.path.join(SHARED, "tokenizers")
    if not os.path.exists(os.path.join(d, "opt-vocab.json")):
        t.skip("no tokenizer data beside this checkout")
    src = t.copy_hf("pre-f16")
    cfg = json.load(open(os.path.join(src, "config.json")))
    shutil.copy(os.path.join(d, "opt-vocab.json"), os.path.join(src, "vocab.json"))
    shutil.copy(os.path.join(d, "opt-merges.txt"), os.path.join(src, "merges.txt"))
    t.check("vocab_size" in cfg, "config")
    shutil.copy(os.path.join(t.hf("demo-opt"), "tokenizer_config.json"), src)     # add_bos_token, as in OPT's own
    r = t.run("convert", src, "dst")
    t.check("token" in r.err.lower() and "257" in r.err, "a tokenizer with more ids than the model has rows is a warning")
    t.write("x.txt", "Hello world")
    t.eq(json.loads(t.run("tokenize", "dst", "x.txt").out), [2, 31414, 232], "OPT's ids")
    vectors = os.path.join(d, "vectors", "gpt-2")
    texts = open(vectors + ".inp", "rb").read().split(b"\n__ggml_vocab_test__\n")
    rows = [x.split() for x in open(vectors + ".out").read().split("\n")]
    name, id_of = gpt2_names(os.path.join(d, "opt-merges.txt")), json.load(open(os.path.join(d, "opt-vocab.json"), encoding="utf-8"))
    t.check(len(texts) > 40 and len(rows) >= len(texts), "vectors")
    for text, row in zip(texts, rows):
        t.write("x.txt", text)
        t.eq(json.loads(t.run("tokenize", "dst", "x.txt", "--no-special").out), [id_of[name[int(i)]] for i in row], repr(text))
    t.write("ids.json", t.run("tokenize", "dst", vectors + ".inp", "--no-special").out)
    t.eq(t.run("tokenize", "dst", "ids.json", "--decode").out.encode("utf-8", "surrogateescape"), open(vectors + ".inp", "rb").read(), "all of them, there and back")
