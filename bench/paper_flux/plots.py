"""The plots beside the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from bench.paper_flux.mttf import SCHEMES
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Found = dict[str, Any]

mpl.use("Agg")


def plot(kept: Found, folder: Path) -> None:
    """Write one plot for each measured experiment."""
    if "mttf" in kept:
        figure = Figure(figsize=(6, 4.2), layout="constrained")
        _mttf(figure.add_subplot(), kept["mttf"])
        figure.savefig(folder / "flux-mttf.png", dpi=110)
    if "failure" in kept:
        figure = Figure(figsize=(12, 3.8), layout="constrained")
        _failure([figure.add_subplot(1, 2, n) for n in (1, 2)], kept["failure"])
        figure.savefig(folder / "flux-failure.png", dpi=110)


def _mttf(one: Axes, found: Found) -> None:
    machines = found["machines"]
    for name, marker in zip(SCHEMES, "xs^vo", strict=True):
        of = found["schemes"][name]
        (line,) = one.plot(machines, of["mean_years"], marker, label=SCHEMES[name].title)
        one.plot(machines, of["closed_years"], "-", color=line.get_color(), linewidth=0.8)
    one.set(xscale="log", yscale="log", xlabel="machines", ylabel="mean time to failure (years)")
    one.set_xticks(machines, [str(n) for n in machines], minor=False)
    one.grid(alpha=0.3)
    one.legend(fontsize=8)


def _failure(axes: list[Axes], found: Found) -> None:
    first = found["kills"][0]
    late = np.array(
        first["later_max_ms"], dtype=float
    )  # None, where none was expected, is no number
    axes[0].plot(first["at_s"], first["per_s"], linewidth=0.9)
    axes[0].set(ylabel="readings in first answers, per s", ylim=(0, None))
    axes[1].plot(first["at_s"], late, linewidth=0.9)
    axes[1].set(ylabel="latest first answer: later than usual (ms)")
    for one in axes:
        one.axvline(0, color="black", linewidth=0.8, linestyle="--")
        one.set(xlabel="since the kill (s)")
        one.grid(alpha=0.3)
