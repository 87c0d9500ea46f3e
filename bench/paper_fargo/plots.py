"""The plot of the page of results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from bench.paper_fargo.page import rows_of
from matplotlib.figure import Figure


def plot(kept: dict[str, Any], folder: Path) -> None:
    """Draw the medians of exact and of first answers, by failure; as bars from zero."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.add_subplot()
    rows = rows_of(kept)
    at = np.arange(len(rows))
    for shift, name, label in ((-0.2, "exact_ms", "exact"), (0.2, "first_ms", "first")):
        axes.bar(at + shift, [np.median(one[name]) for one in rows], 0.4, label=label)
    names = [
        f"{one['replicas']} replica{'s' * (one['replicas'] > 1)}\n"
        + (f"{one['killed']} killed, {one['cut']}" if one["killed"] else "undisturbed")
        for one in rows
    ]
    axes.set_xticks(at, names, fontsize=7)
    axes.set(ylabel="median latency (ms)", ylim=(0, None))
    axes.legend()
    axes.grid(axis="y", alpha=0.3)
    figure.savefig(folder / "fargo-latency.png", dpi=110)
