"""The plots beside the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from bench.paper_dpc import availability, serialization
from bench.paper_dpc.policies import POLICIES
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Found = dict[str, Any]

mpl.use("Agg")


def plot(kept: Found, folder: Path) -> None:
    """Write one plot for each measured experiment."""
    drawings: dict[str, tuple[str, int, Callable[[list[Axes], Found], None]]] = {
        "availability": ("dpc-availability", 1, _availability),
        "serialization": ("dpc-serialization", 2, _serialization),
        "policies": ("dpc-policies", 2, _policies),
        "long": ("dpc-memory", 1, _memory),
    }
    folder.mkdir(exist_ok=True)
    for name, (file, width, draw) in drawings.items():
        if name not in kept:
            continue
        figure = Figure(figsize=(6 * width, 3.8), layout="constrained")
        axes = [figure.add_subplot(1, width, i + 1) for i in range(width)]
        draw(axes, kept[name])
        for one in axes:
            one.grid(alpha=0.3)
            one.legend(fontsize=8)
        figure.savefig(folder / f"{file}.png", dpi=110)


def _availability(axes: list[Axes], found: Found) -> None:
    (one,) = axes
    xs = [row["failure_s"] for row in found["rows"]]
    one.plot(xs, [row["proc_new_s"] for row in found["rows"]], "o-", label="ours")
    one.plot(xs, [availability.PAPER_S[x] for x in xs], "s--", label="paper, Table III")
    one.axhline(found["bound_s"], color="black", linewidth=0.8, label="bound X")
    one.set(xlabel="failure (s)", ylabel="Proc_new (s)", ylim=(0, None))


def _serialization(axes: list[Axes], found: Found) -> None:
    both = (
        ("bucket", "bucket size (ms)", serialization.PAPER_IV),
        ("boundary", "boundary interval (ms)", serialization.PAPER_V),
    )
    for one, (key, label, paper) in zip(axes, both, strict=True):
        xs = sorted(map(int, found[key]))
        one.plot(xs, [found[key][str(x)]["mean"] for x in xs], "o-", label="ours")
        one.plot(xs, [paper[x] for x in xs], "s--", label="paper")
        one.set(xlabel=label, ylabel="average latency (ms)", ylim=(0, None))


def _policies(axes: list[Axes], found: Found) -> None:
    xs = [row["failure_s"] for row in found["rows"]]
    for failure, stabilization in POLICIES:
        name = f"{failure}-{stabilization}"
        marker = "o" if failure == "process" else "s"
        line = {"process": "-", "delay": "--", "suspend": ":"}[stabilization]
        for one, figure in zip(axes, ("proc_new_s", "n_tentative"), strict=True):
            ys = [row[name][figure] for row in found["rows"]]
            one.plot(xs, ys, marker + line, label=name.replace("-", ", "))
    axes[0].axhline(found["bound_s"], color="black", linewidth=0.8, label="bound X")
    axes[0].set(xlabel="failure (s)", ylabel="Proc_new (s)", ylim=(0, None))
    axes[1].set(xlabel="failure (s)", ylabel="N_tentative (buckets)")


def _memory(axes: list[Axes], found: Found) -> None:
    (one,) = axes
    samples = found["samples"]
    at = [s["at_s"] for s in samples]
    for name in samples[0]["resident"]:
        one.plot(at, [s["resident"][name] for s in samples], label=name)
    for name in samples[0]["live_heap"]:
        one.plot(at, [s["live_heap"][name] for s in samples], "--", label=f"{name}, live heap")
    above = 1.5 * max(max(s["resident"].values()) for s in samples)  # room for the legend
    one.set(xlabel="since the failure began (s)", ylabel="memory (MB)", ylim=(0, above))
