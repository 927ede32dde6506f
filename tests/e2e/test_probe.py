# SPDX-License-Identifier: Apache-2.0
"""probe: what it writes, what it refuses, and that what it writes is whole or not there."""
import json, os, signal, time
from harness import Failed, Gpu, smoke, threads

FEW = ["--quick", "--seconds", "1", "--threads", "2", "--host-mem", "256M"]


def check(t, profile):
    """What a profile of this machine has at least."""
    host, disk = profile["host"], profile["disk"]
    for f, unit in ((host["mem"], "GiB"), (host["read"], "GB/s"), (host["flops"], "GFLOP/s"), (host["task"], "us")):
        if not (f["value"] >= 0 and f["unit"] == unit and f["source"] == "measured"):
            raise Failed(f"a figure is not as it should be: {f}")
    if not host["read"]["spread"][0] <= host["read"]["value"] <= host["read"]["spread"][1]:
        raise Failed(f"the median is outside its spread: {host['read']}")
    for kind, over in (("linear", "over_m"), ("decode", "over_entries"), ("prompt", "over_tokens")):
        for c in host[kind]:
            x = c[over]["x"]
            if not x or x != sorted(x) or len(x) != len(c[over]["y"]):
                raise Failed(f"{kind}: no curve: {c}")
    missing = {"layernorm", "embed", "kv_round", "kv_compact", "kv_replay", "sample", "checksum"} - set(host["ops"])
    if not host["linear"] or not host["decode"] or not host["prompt"] or missing:
        raise Failed(f"something was not measured: {missing}")
    return disk


@smoke
def test_writes_a_profile(t):
    """Whole, under its name, in another's place, with nothing else left behind."""
    os.makedirs(t.path("out"))
    path = t.write("out/p.json", "another\n")
    r = t.run("probe", *FEW, "-o", path, "--disk-space", "64M", "--offload-dir", t.dir, "--reads", t.write("weights", "x" * (8 << 20)))
    r.says("the profile is in", "memory", "disk: reads")
    disk = check(t, json.load(open(path)))
    if not (disk["read"]["value"] > 0 and disk["write"]["value"] > 0 and disk["read_over_depth"]):
        raise Failed(f"no disk: {disk}")
    if os.listdir(t.path("out")) != ["p.json"]:
        raise Failed(f"left behind: {os.listdir(t.path('out'))}")


def test_default_place_and_stdout(t):
    r = t.run("probe", *FEW, "--disk-space", "0", "-o", "-")
    disk = check(t, json.loads(r.out))
    if disk["read"] is not None or disk["write"] is not None:
        raise Failed("there was no room for a disk's rates")
    r.says("the disk is not measured")
    cache = t.path("cache")
    r = t.run("probe", *FEW, "--disk-space", "0", env={"XDG_CACHE_HOME": cache})
    check(t, json.load(open(os.path.join(cache, "penstock", "hardware.json"))))
    r = t.run("probe", *FEW, env={"XDG_CACHE_HOME": "", "HOME": ""}, rc=1)
    r.says("HOME")


def test_refusals(t):
    """Told before anything is measured."""
    os.makedirs(t.path("folder"))
    os.mkfifo(t.path("pipe"))
    for args, rc, words in ((["-o", t.path("no/such/p.json")], 1, ["no/such", "No such file"]),
                            (["-o", ""], 2, ["-o", "not nothing"]),
                            (["-o", t.path("folder")], 2, ["folder", "no regular file"]),
                            (["-o", "-", "--offload-dir", t.path("nowhere")], 1, ["nowhere"]),
                            (["-o", "-", "--reads", t.path("none")], 1, ["--reads", "none", "No such file"]),
                            (["-o", "-", "--reads", t.path("folder")], 1, ["--reads", "folder"]),
                            (["-o", "-", "--reads", t.path("pipe")], 1, ["--reads", "pipe is not a regular file"]),
                            (["-o", "-", "--reads", t.write("short", "short")], 1, ["--reads", "short", "too small"]),
                            (["-o", t.path("short"), "--reads", t.path("short")], 2, ["-o", "is read, too"]),
                            (["--seconds", "0"], 2, ["--seconds", "1 to 3600"]),
                            (["--threads", "0"], 2, ["--threads"]),
                            (["--threads", "4096", "--host-mem", "256M"], 2, ["--threads 4096", "256"]),
                            (["-o", "-", "--host-mem", "100M"], 4, ["--host-mem", "256 MiB"]),
                            (["--disk-space", "x"], 2, ["--disk-space"]),
                            (["--io", "tape"], 2, ["--io", "uring"]),
                            (["more"], 2, ["no argument is expected"])):
        begin = time.time()
        r = t.run("probe", "--quick", *args, rc=rc)
        r.says(*words)
        if time.time() - begin > 5 * t.shared.slow_by:
            raise Failed(f"{args}: that took {time.time() - begin:.1f} s")


@threads
def test_interrupted(t):
    path = t.path("p.json")
    with open(path, "w") as f:
        f.write("old\n")
    p = t.start("probe", "--seconds", "30", "--host-mem", "256M", "-o", path, "--disk-space", "64M", "--offload-dir", t.dir)
    time.sleep(1.5)
    p.send_signal(signal.SIGINT)
    r = t.finish(p)
    t.eq(r.rc, 130, "exit status")
    if open(path).read() != "old\n" or [x for x in os.listdir(t.dir) if x.startswith("p.json") and x != "p.json"]:
        raise Failed(f"the old file is not as it was: {os.listdir(t.dir)}")


def test_gpu(t):
    path = t.path("p.json")
    r = t.run("probe", *FEW, "-o", path, "--disk-space", "0", "--gpu-mem", "9M", gpu=Gpu(seed=5))
    p = json.load(open(path))
    gpu, links = p["gpu"], p["links"]
    if not (gpu["linear"] and gpu["decode"] and gpu["read"]["value"] >= 0 and gpu["task"]["value"] > 0):
        raise Failed(f"the GPU was not measured: {gpu}")
    for way in ("h2d", "d2h", "h2d_beside_d2h", "d2h_beside_h2d"):
        if not links[way]["value"] > 0:
            raise Failed(f"{way} was not measured: {links}")
    r = t.run("probe", *FEW, "-o", path, "--disk-space", "0", "--gpu-mem", "9M", gpu=Gpu(seed=5, fail="cudaMemcpyAsync:9:2"), rc=1)
    r.says("cudaMemcpyAsync")
    r = t.run("probe", *FEW, "-o", "-", "--disk-space", "0", "--gpu-mem", "1G")
    r.says("--gpu-mem does nothing here")
