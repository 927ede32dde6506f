# SPDX-License-Identifier: Apache-2.0
"""What is predicted is what is run, seen through the commands: `plan`, `generate --dry-run` and `generate` choose one plan for one job, model, machine and options;
its sweeps, its bytes on each link, what its kernels read, write and multiply, and its memory of each tier are the run's. (That the operations are the same
ones, in the same order, tests/sched/conserve_test.c sees.)"""
import json, os, random

from harness import Gpu, cases, smoke
from test_memory import MIB

SOURCE = "made up for a test"
HOST_MEM, GPU_MEM = 48, 64


def figure(value, unit):
    return {"value": value, "unit": unit, "source": SOURCE}


def probed(t, gpu):
    """-> the folder in which there is a profile of this machine, with the emulated GPU if need be."""
    def make():
        r = t.run("probe", "--quick", "--seconds", "1", "--threads", "2", "--host-mem", "256M", "--disk-space", "64M", "--offload-dir", t.dir, "-o", "-")
        p = json.loads(r.out)
        if not p["disk"]["read"]:               # no room for a probe here: any rates will do
            p["disk"].update(read=figure(2, "GB/s"), write=figure(1, "GB/s"))
        if gpu:
            p["gpu"] = {"name": "emulated sm_90", "sm": figure(90, "sm"), "mem": figure(1, "GiB"), "read": figure(30, "GB/s"), "flops": figure(1, "TFLOP/s")}
            p["links"] = {"h2d": figure(4, "GB/s"), "d2h": figure(4, "GB/s")}
        folder = os.path.join(t.shared.root, f"probed-{gpu}")
        os.makedirs(os.path.join(folder, "penstock"))
        with open(os.path.join(folder, "penstock", "hardware.json"), "w") as f:
            json.dump(p, f)
        return folder
    return t.shared.once(("probed", gpu), make)


def alike():
    return [(9, 6)] * 12


def mixed(n=14):
    """Short prompts and long, one token and many: requests end early, others take their slots."""
    r = random.Random(n)
    return [(1 + r.randrange(8) if i % 5 else 60, 1 if i % 4 == 3 else 1 + r.randrange(20)) for i in range(n)]


def write_job(t, lengths):
    r = random.Random(5)
    return t.job([dict(prompt=[2] + [r.randrange(3, 257) for _ in range(prompt - 1)], max_tokens=new, ignore_eos=True) for prompt, new in lengths])


def shape(slots, mbs, *more):
    return ["--gpu-batch-size", slots, "--num-gpu-batches", mbs, *more]


FULL, LOCAL, SINK = (["--kv-policy", p] for p in ("full", "local", "sink"))
H2O = ["--kv-policy", "h2o", "--kv-budget", "25%"]
# name: lengths, options
ON_HOST = {
    "auto": (mixed(), FULL),
    "auto, h2o": (alike(), H2O),
    "auto, large": (mixed(90), [*FULL, "--host-mem", "8M"]),
    "in memory": (mixed(), [*shape(4, 1), "--weights", "host:100", "--kv", "host:100", *FULL]),
    "weights on disk": (alike(), [*shape(4, 2), "--weights", "disk:100", "--kv", "host:100", *H2O]),
    "weights split": (mixed(), [*shape(3, 2), "--weights", "host:50,disk:50", "--kv", "host:100", *LOCAL]),
    "KV on disk": (mixed(), [*shape(2, 3), "--weights", "host:100", "--kv", "disk:100", *FULL]),
    "KV split": (mixed(), [*shape(2, 2), "--kv", "host:50,disk:50", "--weights", "host:30,disk:70", *H2O]),
    "hidden on disk": (mixed(), [*shape(4, 2, "--prefill-tokens", 64), "--hidden", "disk:100", *SINK]),
    "all on disk": (mixed(), [*shape(5, 2, "--prefetch", 1), "--weights", "disk:100", "--kv", "disk:100", "--hidden", "disk:100", *H2O]),
    "hidden split, one by one": (alike(), [*shape(1, 2), "--hidden", "host:50,disk:50", "--weights", "disk:100", *FULL]),
}
BESIDE_A_GPU = {
    "auto": (mixed(), FULL),
    "all on the GPU": (mixed(), [*shape(4, 1), "--percent", 100, 0, 100, 0, 100, 0, *FULL]),
    "weights streamed": (alike(), [*shape(3, 2), "--percent", 0, 100, 100, 0, 100, 0, *H2O]),
    "weights on all tiers": (mixed(), [*shape(3, 2), "--weights", "gpu:30,host:30,disk:40", "--kv", "gpu:40,host:30,disk:30", *FULL]),
    "KV visits": (mixed(), [*shape(2, 3), "--percent", 50, 50, 0, 100, 0, 100, "--attention", "gpu", *H2O]),
    "attention on the host": (mixed(), [*shape(2, 2), "--percent", 20, 50, 0, 100, 100, 0, "--attention", "host", *FULL]),
    "all on disk": (mixed(), [*shape(4, 2), "--percent", 0, 0, 0, 0, 0, 0, "--attention", "gpu", *SINK]),
    "KV on disk, attention on the host": (alike(), [*shape(2, 2), "--percent", 0, 50, 0, 50, 100, 0, "--attention", "host", *LOCAL]),
}
SHAPE = ("gpu_batch_size", "num_gpu_batches", "prefill_tokens", "prefetch")


class Answers:
    """The same question to each of the commands."""

    def __init__(self, t, lengths, options, gpu=None, cache=None):
        self.t, self.gpu = t, gpu
        self.model, self.job = t.model("pre-f16"), write_job(t, lengths)
        self.env = {"XDG_CACHE_HOME": cache or probed(t, bool(gpu))}
        self.options = ["--host-mem", f"{HOST_MEM}M", "--disk-space", "1G", "--threads", 2, *(["--gpu-mem", f"{GPU_MEM}M"] if gpu else []), *options]
        self.top = [self.plan(n) for n in (1, 5, 8)]
        self.dry, self.ran = self.report("--dry-run"), self.report("--overwrite", "--no-resume")

    def plan(self, n):
        return json.loads(self.t.run("plan", self.model, "--job", self.job, "--json", "--top", n, *self.options, env=self.env, gpu=self.gpu).out)["plans"]

    def report(self, *more):
        self.last = self.t.run("generate", self.model, self.job, "-o", "out.jsonl", "--report", "r.json", *self.options, *more, env=self.env, gpu=self.gpu)
        return json.loads(self.t.read("r.json"))


def check_plan(t, a):
    """One plan, whoever is asked, and however many are told of."""
    first = a.top[0][0]
    for plans in a.top:
        t.eq(plans[0], first, f"the first of {len(plans)} plans")
    for name, r in (("dry run", a.dry), ("run", a.ran)):
        t.eq({k: r["plan"][k] for k in SHAPE}, {k: first[k] for k in SHAPE}, f"shape of the {name}")
        t.eq(r["predicted"]["total_s"], first["total_s"], f"time predicted by the {name}")
    t.eq(a.dry["plan"], a.ran["plan"], "placement")
    t.eq(a.dry["predicted"], a.ran["predicted"], "predicted by the dry run, and the run")


def check_bytes(t, a, near):
    """near: share by which what kernels do may differ (where sweeps are sampled); 0: not at all."""
    first, said = a.top[0][0], a.ran["predicted"]["links"]
    did = a.ran["links"]
    t.eq(a.ran["predicted"]["sweeps"], a.ran["actual"]["sweeps"], "sweeps")
    for link in ("disk_read", "disk_write", "h2d", "d2h"):
        t.eq({k: did[link][k] for k in ("bytes", "load_bytes")}, said[link], f"{link}: got by the run, want as predicted")
        if first[link + "_bytes"] is not None:
            t.eq(first[link + "_bytes"], said[link]["bytes"] - said[link]["load_bytes"], f"{link} of plan")
            t.eq(first.get(f"load_{link}_bytes", 0), said[link]["load_bytes"], f"{link} of plan, loading")
    for link, what in (("dram", "bytes"), ("hbm", "bytes"), ("gemm", "flops")):
        if said[link][what] is not None:
            t.near(did[link][what], said[link][what], near * said[link][what] + 1e-9 * said[link][what], f"{link}, {what}")


def check_memory(t, a):
    said, memory, first = a.ran["predicted"]["memory"], a.ran["memory"], a.top[0][0]
    t.eq(memory["taken"], {k: said[k] for k in ("gpu", "host", "disk")}, "memory taken, and planned")
    t.eq({k: said[k] for k in said}, {k: first[k + "_bytes"] for k in said}, "memory of generate's plan, and of plan's")
    if a.gpu:
        t.eq(a.last.gpu["peak"], said["gpu"], "memory of the GPU, as it was asked for, and planned")
    if t.shared.slow_by == 1:
        emulated = said["gpu"] or 0             # is the process's
        t.check(memory["peak"]["host"] <= (HOST_MEM + 64) * MIB + emulated, f"peak {memory['peak']['host'] / MIB:.0f} MiB")


def check_all(t, lengths, options, gpu=None):
    a = Answers(t, lengths, options, gpu)
    if lengths != alike():                      # there what comes round again is counted, not simulated
        t.eq(a.ran["predicted"]["sweeps_run"], a.ran["predicted"]["sweeps"], "sweeps simulated, of those there are")
    check_plan(t, a)
    check_bytes(t, a, 0)
    check_memory(t, a)


@smoke
@cases(**{n: n for n in ON_HOST})
def test_on_the_host(t, name):
    check_all(t, *ON_HOST[name])


@cases(**{n: n for n in BESIDE_A_GPU})
def test_beside_a_gpu(t, name):
    check_all(t, *BESIDE_A_GPU[name], gpu=Gpu(seed=2))


@cases(disk=["--weights", "host:40,disk:60", "--kv", "disk:100", *H2O], host=["--weights", "disk:100", "--kv", "host:100", *FULL])
def test_sampled(t, options):
    """A job with more sweeps than are simulated: the bytes that move are as exact. What kernels do is within 10 %: which sweeps are run hangs on the
    machine's probe, what heads do is the last thing that their weights are to get right, and it is much of so small a model (3 of 10 probes: 4 to 7 %)."""
    a = Answers(t, mixed(120), [*shape(2, 1), *options])
    t.check(a.ran["predicted"]["sweeps_run"] < a.ran["predicted"]["sweeps"], "all sweeps were simulated")
    check_plan(t, a)
    check_bytes(t, a, 0.1)
    check_memory(t, a)


def test_dry_run_report(t):
    """--dry-run --report tells what is asked for and predicted, and that nothing was run."""
    a = Answers(t, mixed(), FULL)
    t.eq(a.dry["actual"], {"total_s": None, "prefill_s": None, "decode_s": None, "sweeps": None}, "actual")
    t.eq((a.dry["job"]["requests"], a.dry["job"]["prompt_tokens"], a.dry["job"]["generated_tokens"]), (14, sum(p for p, _ in mixed()), None), "job")
    t.eq(a.dry["predicted"]["generated_tokens"], sum(n for _, n in mixed()), "tokens to generate")
    t.check(all(v is None for link in a.dry["links"].values() for v in link.values()), f"links: {a.dry['links']}")
    t.check(all(v is None for k in ("peak", "taken") for v in a.dry["memory"][k].values()), f"memory: {a.dry['memory']}")
    t.eq(a.ran["job"]["generated_tokens"], a.dry["predicted"]["generated_tokens"], "generated")


def test_no_room_for_a_probe(t):
    """Of a disk whose rates were not found `plan` takes the guesses that `generate` takes, and says so."""
    with open(os.path.join(probed(t, False), "penstock", "hardware.json")) as f:
        p = json.load(f)
    p["disk"] = {"read": None, "write": None}
    os.makedirs(t.path("cache/penstock"))
    t.write("cache/penstock/hardware.json", json.dumps(p))
    a = Answers(t, mixed(), [*shape(4, 2), "--weights", "disk:100", *FULL], cache=t.path("cache"))
    check_plan(t, a)
    t.check(a.top[0][0]["weights_disk"] == 100, "nothing is planned for the disk")
    t.run("plan", a.model, "--job", a.job, *a.options, env=a.env).says("found no room on its disk", "1.5 GB/s", "guesses")
    t.run("plan", a.model, "--job", a.job, *a.options, "--hardware", t.path("cache/penstock/hardware.json"), rc=4).says("of which no rates are known")
