"""Runs the experiments and writes ``docs/results/dpc.md``.

make paper-dpc                             all but the long one, some 20 minutes on two cores
make paper-dpc ARGS='--only switching'     one of them (also: --only long, ten minutes and more)
make paper-dpc ARGS='--quick'              short selections, nothing is written
make paper-dpc ARGS='--render'             the page and the plots again, from the results there are
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.paper_dpc import availability, long, masking, policies, serialization, switching
from bench.paper_dpc.page import page
from bench.paper_dpc.plots import plot
from bench.run import machine

FOLDER = Path(__file__).parents[2] / "docs" / "results"
EXPERIMENTS: dict[str, Callable[..., dict[str, Any]]] = {
    "availability": availability.run,
    "masking": masking.run,
    "switching": switching.run,
    "serialization": serialization.run,
    "policies": policies.run,
    "long": long.run,
}


def main() -> int:
    """Run, store, render."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.paper_dpc",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", metavar="NAME[,NAME]", help=", ".join(EXPERIMENTS))
    parser.add_argument("--quick", action="store_true", help="short selections; prints, no more")
    parser.add_argument("--render", action="store_true", help="measure nothing")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else [n for n in EXPERIMENTS if n != "long"]
    if unknown := set(names) - set(EXPERIMENTS):
        parser.error(f"there is no experiment {', '.join(sorted(unknown))}")
    failed = 0
    for name in [] if options.render else names:
        failed += not attempt(name, quick=options.quick)
    if not options.quick:
        render()
    return 1 if failed else 0


def attempt(name: str, *, quick: bool) -> bool:
    """Run one experiment; report one that cannot be measured, and continue."""
    print(f"{name} ...", flush=True)
    began = time.monotonic()
    try:
        found = EXPERIMENTS[name](quick=quick)
    except SystemExit as end:
        print(f"{name}: {end}", file=sys.stderr)
        return False
    took = time.monotonic() - began
    print(f"{name}: {took:.0f} s\n{json.dumps(found, indent=1)}", flush=True)
    if not quick:
        found |= {"at": f"{dt.datetime.now(dt.UTC):%Y-%m-%d}", "took_s": round(took)}
        kept = load() | {"machine": machine(), name: found}
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / "dpc.json").write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    return True


def load() -> dict[str, Any]:
    """Return the figures measured so far."""
    path = FOLDER / "dpc.json"
    if not path.exists():
        return {}
    kept: dict[str, Any] = json.loads(path.read_text())
    return kept


def render() -> None:
    """Write the page and its plots."""
    kept = load()
    plot(kept, FOLDER)
    (FOLDER / "dpc.md").write_text(page(kept))
    print(f"written: {FOLDER / 'dpc.md'}")


if __name__ == "__main__":
    sys.exit(main())
