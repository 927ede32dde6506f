#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what `penstock plan --sweep`, `penstock bench` and bench/predict.py wrote. Needs matplotlib (./run.sh deps bench, or pip).

    plot.py over SWEEP --x kv-budget [--by host-mem] [--y tokens_per_s] -o over.png     a line for each value of --by
    plot.py frontier SWEEP [--by host-mem] -o frontier.png                              latency and throughput, and the points that nothing beats in both
    plot.py causes SWEEP|BENCH|REPORT... -o causes.png                                  what the time goes to: computing, or waiting for weights, KV, others
    plot.py busy SWEEP|BENCH -o busy.png                                                how busy each link was
    plot.py predicted PREDICT -o predicted.png                                          predicted beside measured time

SWEEP: CSV or JSON of --sweep. BENCH: JSON of `penstock bench`. REPORT: of `generate --report`. Rows of several files are drawn together. PREDICT: a list of {name, predicted_s, measured_s, spread}. Beneath the figure stands the command that
made the data: the file's own, or --command.
"""
import argparse, csv, json, math, os, re, sys, textwrap


def number(v):
    """-> a float where the text is one: "0.5", "50%", "32G" (bytes), "2GB/s"; else what it was."""
    m = re.fullmatch(r"([-+]?\d+\.?\d*(?:[eE][-+]?\d+)?) ?([KMGT]?)(%|i?B(?:/s)?|FLOP/s|)", v.strip()) if isinstance(v, str) else None
    if not m:
        return v
    kilo = 1024 if m[3][:1] in ("", "i") else 1000      # 32G and 32GiB are powers of 1024, 32GB is not
    return float(m[1]) * kilo ** " KMGT".index(m[2] or " ") * (0.01 if m[3] == "%" else 1)


def load(path):
    """-> rows, the command that made them (or None). A row is flat: {name: number or text}."""
    try:
        return read(path)
    except OSError as e:
        sys.exit(f"plot.py: {path}: {e.strerror}")
    except ValueError as e:
        sys.exit(f"plot.py: {path}: neither CSV by its name (*.csv) nor JSON: {e}")


def read(path):
    with open(path, newline="") as f:
        if path.endswith(".csv"):
            return [planned(r) for r in csv.DictReader(f)], None
        doc = json.load(f)
    if isinstance(doc, list):
        return doc, None
    if not isinstance(doc, dict):
        sys.exit(f"plot.py: {path}: no list of points in it")
    if "wait_s" in doc:
        return [report(doc, path)], None
    rows = next((doc[k] for k in ("points", "rows", "plans") if isinstance(doc.get(k), list)), None)
    if rows is None:
        sys.exit(f"plot.py: {path}: no list of points in it")
    return [flat(r) if "runs" in r else planned(r) for r in rows], doc.get("command")


def flat(row):
    """A row of `penstock bench` as one of `penstock plan`: of the run in the middle."""
    runs = sorted((r for r in row["runs"] if r["complete"]), key=lambda r: r["tokens_per_s"])
    out = {"name": row["name"], "prompt_len": row["prompt_len"], "gen_len": row["gen_len"], "tokens_per_s": row["tokens_per_s"]["median"], "total_s": None}
    if runs:
        run = runs[len(runs) // 2]
        busy = {q: 100 * v["busy_s"] / run["total_s"] for q, v in run["links"].items()}
        gpu = row["memory"]["gpu"] is not None
        out |= {"total_s": run["total_s"], "disk_read_busy": busy["read"], "disk_write_busy": busy["write"], "host_busy": busy["host" if gpu else "compute"]}
        if gpu:
            out |= {"gpu_busy": busy["compute"], "h2d_busy": min(100, busy["h2d"] + busy["up"]), "d2h_busy": busy["d2h"]}
        if "wait_s" in run:
            out |= shares(run["links"]["compute"]["busy_s"], {k: run["wait_s"][k] for k in ("weights", "kv", "other")}, run["total_s"])
    return out


def shares(compute, wait, total):
    """What COMPUTE's time goes to, in percent of the job's; what is left of it: it had nothing to do."""
    out = {"compute": compute, **wait}
    out["idle"] = max(0, total - sum(out.values()))
    return {"of_" + k: 100 * v / total for k, v in out.items()}


def report(doc, path):
    """generate's report, as a row."""
    t, w = doc["time"], doc["wait_s"]
    total = t["prefill"] + t["decode"]
    return {"name": os.path.basename(path), "total_s": total, "tokens_per_s": doc["throughput"]["total"],
            **shares(w["compute"], {k: w[k] or 0 for k in ("weights", "kv", "tokenizer", "output")}, total)}


def planned(row):
    """A sweep's row with its shares."""
    busy, waits = [number(row.get(k)) for k in ("gpu_busy", "host_busy")], {k: number(row.get("wait_" + k)) for k in ("weights", "kv", "other")}
    compute = busy[0] if is_number(busy[0]) else busy[1]
    return {**row, **shares(compute, waits, 100)} if is_number(compute) and all(is_number(v) for v in waits.values()) else row


def plain(name):
    return name.strip("-").replace("-", "_")


def texts(rows, name):
    """Every row's value of that name as it stands there. --kv-budget, kv-budget and kv_budget are the same name."""
    want = plain(name)
    keys = [k for k in rows[0] if plain(k) == want] if rows else []
    if not keys:
        sys.exit(f"plot.py: the data have no {name}; they have {', '.join(rows[0]) if rows else 'no rows'}")
    return [r.get(keys[0]) for r in rows]


def column(rows, name):
    return [number(v) for v in texts(rows, name)]


def words(rows, name):
    """-> {value: its text}"""
    return {number(v): f"{v:g}" if is_number(v) else str(v) for v in texts(rows, name)}


def is_number(v):
    return isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v)


def lines(rows, x, y, by=None):
    """-> {value of by: [(x, y), ...] ascending}; rows without a plan have no y and make no point. Of several points at one x the best is taken."""
    out = {}
    for vx, vy, b in zip(column(rows, x), column(rows, y), column(rows, by) if by else [""] * len(rows)):
        if is_number(vx) and is_number(vy):
            at = out.setdefault(b, {})
            at[vx] = max(vy, at.get(vx, vy))
    return {b: sorted(p.items()) for b, p in sorted(out.items(), key=lambda i: order(i[0]))}


def order(v):
    """Numbers before texts."""
    return (0, v, "") if is_number(v) else (1, 0, str(v))


def pareto(points):
    """Of (latency, throughput): those that no other beats in one without losing in the other, by latency."""
    out = []
    for p in sorted(points, key=lambda p: (p[0], -p[1])):
        if not out or p[1] > out[-1][1]:
            out.append(p)
    return out


# ---------------------------------------------------------------- figures

NAMES = {"tokens_per_s": "tokens/s", "total_s": "time of the job, s", "latency_s": "a request takes, s", "kv_budget": "KV budget", "host_mem": "host memory", "gpu_mem": "GPU memory"}


def title(name):
    return NAMES.get(plain(name), plain(name).replace("_", " "))


def axes(plt):
    fig, ax = plt.subplots(figsize=(7.6, 4.6), layout="constrained")
    ax.grid(True, which="major", color="0.9")
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    return fig, ax


def ticks_x(ax, values, text):
    """At the values that there are; logarithmic where they span more than a factor of five."""
    values = sorted(set(values))
    if values and values[0] > 0 and values[-1] > 5 * values[0]:
        ax.set_xscale("log")
    keep = values
    while len(keep) > 9:
        keep = keep[::2]
    ax.set_xticks(keep, [text[v] for v in keep])
    ax.minorticks_off()


def marks(values):
    """1, 2, 5, 10 ... between them; fewer where they span more than three powers of ten."""
    lo, hi = min(values) / 1.1, max(values) * 1.1
    steps = (1, 2, 5) if hi < 1000 * lo else (1,)
    return [m * 10.0 ** e for e in range(math.floor(math.log10(lo)), math.ceil(math.log10(hi)) + 1) for m in steps if lo <= m * 10.0 ** e <= hi]


def scale_y(ax, values):
    """From 0, or logarithmic where values span more than a factor of twenty."""
    if min(values) > 0 and max(values) > 20 * min(values):
        ax.set_yscale("log")
        at = marks(values)
        ax.set_yticks(at, [f"{m:g}" for m in at])
        ax.minorticks_off()
    else:
        ax.set_ylim(bottom=0)


def over(plt, rows, a):
    fig, ax = axes(plt)
    got, by = lines(rows, a.x, a.y, a.by), words(rows, a.by) if a.by else {"": None}
    for i, (b, points) in enumerate(got.items()):
        ax.plot(*zip(*points), marker="o", markersize=4, color=plt.cm.viridis(0.9 * i / max(1, len(got) - 1)), label=by[b])
    ticks_x(ax, [p[0] for v in got.values() for p in v], words(rows, a.x))
    scale_y(ax, [p[1] for v in got.values() for p in v])
    ax.set_xlabel(title(a.x))
    ax.set_ylabel(title(a.y))
    if a.by:
        ax.legend(title=title(a.by), frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return fig


def frontier(plt, rows, a):
    """Latency is the time from a request's admission to its last token, the mean of the job's."""
    fig, ax = axes(plt)
    pairs = list(zip(column(rows, a.latency), column(rows, a.y), column(rows, a.by) if a.by else [""] * len(rows)))
    pairs = [p for p in pairs if is_number(p[0]) and is_number(p[1])]
    kinds, by = sorted({p[2] for p in pairs}, key=order), words(rows, a.by) if a.by else {"": None}
    for i, b in enumerate(kinds):                       # hollow, so that points upon others show
        ax.scatter(*zip(*[p[:2] for p in pairs if p[2] == b]), s=34, marker="os^Dv"[i % 5], facecolors="none", linewidths=1.3,
                   edgecolors=plt.cm.viridis(0.85 * i / max(1, len(kinds) - 1)), label=by[b])
    ax.plot(*zip(*pareto([p[:2] for p in pairs])), color="C3", lw=1.2, drawstyle="steps-post", label="not beaten", zorder=1)
    ax.set_xscale("log")
    at = marks([p[0] for p in pairs])
    ax.set_xticks(at, [f"{m:g}" for m in at])
    ax.minorticks_off()
    scale_y(ax, [p[1] for p in pairs])
    ax.set_xlabel(title(a.latency))
    ax.set_ylabel(title(a.y))
    ax.legend(title=title(a.by) if a.by else None, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return fig


def predicted(plt, rows, a):
    fig, (ax, bars) = plt.subplots(1, 2, figsize=(11, 5.4), layout="constrained", width_ratios=(1, 1))
    lo = 0.8 * min(min(r["predicted_s"], r["measured_s"]) for r in rows)
    hi = 1.25 * max(max(r["predicted_s"], r["measured_s"]) for r in rows)
    ax.plot([lo, hi], [lo, hi], color="0.3", lw=1)
    ax.fill_between([lo, hi], [0.85 * lo, 0.85 * hi], [1.15 * lo, 1.15 * hi], color="0.92", label="within 15 %", lw=0)
    ax.fill_between([lo, hi], [0.93 * lo, 0.93 * hi], [1.07 * lo, 1.07 * hi], color="0.82", label="within 7 %", lw=0)
    kinds = list(dict.fromkeys(r.get("limit", "") for r in rows))
    for i, kind in enumerate(kinds):
        of = [r for r in rows if r.get("limit", "") == kind]
        x = [r["measured_s"] for r in of]
        ax.errorbar(x, [r["predicted_s"] for r in of], xerr=[[m - r["spread"][0] for m, r in zip(x, of)], [r["spread"][1] - m for m, r in zip(x, of)]],
                    fmt="o", ms=5, lw=1, color=f"C{i}", label=kind or None)
    ax.set(xscale="log", yscale="log", xlim=(lo, hi), ylim=(lo, hi), xlabel="measured, s", ylabel="predicted, s")
    at = marks([lo, hi])
    ax.set_xticks(at, [f"{m:g}" for m in at])
    ax.set_yticks(at, [f"{m:g}" for m in at])
    ax.minorticks_off()
    ax.legend(frameon=False, loc="upper left")
    ranked = sorted(rows, key=lambda r: r["predicted_s"] / r["measured_s"])
    error = [100 * (r["predicted_s"] / r["measured_s"] - 1) for r in ranked]
    bars.barh(range(len(ranked)), error, color=[f"C{kinds.index(r.get('limit', ''))}" for r in ranked])
    bars.set_yticks(range(len(ranked)), [r["name"] for r in ranked], fontsize=8)
    bars.set_xlabel("predicted - measured, %")
    bars.axvline(0, color="0.3", lw=1)
    bars.grid(True, axis="x", color="0.9")
    for x in (ax, bars):
        x.spines[["top", "right"]].set_visible(False)
        x.set_axisbelow(True)
    return fig


LINKS = {"gpu_busy": "GPU's kernels", "host_busy": "host's kernels", "h2d_busy": "copies to the GPU", "d2h_busy": "copies from it", "disk_read_busy": "disk reads", "disk_write_busy": "disk writes"}


def label(row, names):
    """What a row is called: its name, or the values of --name."""
    return ", ".join(words([row], n).popitem()[1] for n in names.split(",")) if names else str(row.get("name", ""))


CAUSES = {"of_compute": ("computing", "0.55"), "of_weights": ("waiting for weights", "C0"), "of_kv": ("waiting for KV", "C1"), "of_other": ("waiting for others,\nas attention on the host", "C4"),
          "of_tokenizer": ("tokenizer", "C5"), "of_output": ("output", "C6"), "of_idle": ("nothing to do", "0.9")}


def causes(plt, rows, a):
    """What the queue that computes does: who waits most for one thing is limited by it."""
    rows = [r for r in rows if "of_compute" in r]
    if not rows:
        sys.exit("plot.py: the data have no waits (wait_s, wait_weights)")
    fig, ax = plt.subplots(figsize=(8.6, 1.6 + 0.3 * len(rows)), layout="constrained")
    left = [0.0] * len(rows)
    for key in [k for k in CAUSES if any(k in r for r in rows)]:
        width = [r.get(key, 0) for r in rows]
        ax.barh(range(len(rows)), width, left=left, height=0.78, color=CAUSES[key][1], label=CAUSES[key][0])
        for i, (x, w) in enumerate(zip(left, width)):
            if w >= 4:
                ax.text(x + w / 2, i, f"{w:.0f}", ha="center", va="center", fontsize=8)
        left = [x + w for x, w in zip(left, width)]
    ax.set_yticks(range(len(rows)), [label(r, a.name) for r in rows], fontsize=9)
    ax.invert_yaxis()
    ax.margins(y=0.01)
    ax.set_xlim(0, max(100, *left))
    ax.set_xlabel("% of the job's time")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
    return fig


def busy(plt, rows, a):
    """How busy each link was, in percent of the job's time: who is near 100 limits; where nobody is, they wait for one another."""
    rows = [r for r in rows if is_number(number(r.get("total_s")))]
    links = [k for k in LINKS if any(is_number(number(r.get(k))) for r in rows)]
    fig, ax = plt.subplots(figsize=(2.6 + 1.0 * len(links), 1.3 + 0.3 * len(rows)), layout="constrained")
    at = [[number(r.get(k)) for k in links] for r in rows]
    ax.imshow([[v if is_number(v) else 0 for v in r] for r in at], cmap="YlOrRd", vmin=0, vmax=120, aspect="auto")
    for i, r in enumerate(at):
        for j, v in enumerate(r):
            ax.text(j, i, f"{v:.0f}" if is_number(v) else "-", ha="center", va="center", fontsize=9, color="white" if is_number(v) and v > 70 else "black")
    ax.set_xticks(range(len(links)), [LINKS[k].replace(" ", "\n", 1) for k in links], fontsize=9)
    ax.xaxis.tick_top()
    ax.set_yticks(range(len(rows)), [label(r, a.name) for r in rows], fontsize=9)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_xlabel("busy, % of the job's time")
    return fig


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("kind", choices=("over", "frontier", "causes", "busy", "predicted"))
    ap.add_argument("data", nargs="+")
    ap.add_argument("-o", "--output", required=True, help="a .png (or what matplotlib knows)")
    ap.add_argument("--x", help="over: what goes along")
    ap.add_argument("--y", default="tokens_per_s", help="what goes up (tokens_per_s)")
    ap.add_argument("--by", help="over, frontier: a colour for each value")
    ap.add_argument("--latency", default="latency_s", help="frontier: what goes along (latency_s)")
    ap.add_argument("--name", help="causes, busy: what a row is called after: columns, with commas between them (its name)")
    ap.add_argument("--title", default="")
    ap.add_argument("--command", help="that made the data, for the caption")
    a = ap.parse_args()
    if a.kind == "over" and not a.x:
        ap.error("over: --x says what goes along")
    loaded = [load(d) for d in a.data]
    rows, command = [r for x in loaded for r in x[0]], loaded[0][1]
    if not rows:
        sys.exit(f"plot.py: {', '.join(a.data)}: no rows")
    try:
        import matplotlib
    except ImportError:
        sys.exit("plot.py: matplotlib is missing: ./run.sh deps bench (Debian's python3-matplotlib), or pip install matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    fig = {"over": over, "frontier": frontier, "causes": causes, "busy": busy, "predicted": predicted}[a.kind](plt, rows, a)
    if a.title:
        fig.suptitle(a.title, fontsize=11)
    caption = textwrap.fill(a.command or command or "", 110)
    fig.text(0.01, -0.01, caption, fontsize=7, family="monospace", va="top", color="0.3")
    fig.savefig(a.output, dpi=150, bbox_inches="tight")


if __name__ == "__main__":
    main()
