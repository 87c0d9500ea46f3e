"""Runs the analysis and the experiment, and writes ``docs/results/flux.md``.

make paper-flux                            all, some 80 minutes on two cores
make paper-flux ARGS='--only mttf'         one of them (also: --only failure, --only disturbed)
make paper-flux ARGS='--only disturbed --times 10'    each fault so many times, not 30
make paper-flux ARGS='--only failure --rate 20000 --keys 110000 --parts 8'   printed, no more
make paper-flux ARGS='--quick'             short, nothing is written
make paper-flux ARGS='--render'            the page and the plots again, from the results there are
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.paper_flux import disturbed, failure, mttf
from bench.paper_flux.page import page
from bench.paper_flux.plots import plot
from bench.run import machine

FOLDER = Path(__file__).parents[2] / "docs" / "results"
KEPT = FOLDER / "flux.json"
EXPERIMENTS: dict[str, Callable[..., dict[str, Any]]] = {
    "mttf": mttf.run,
    "disturbed": disturbed.run,
    "failure": failure.run,
}


def main() -> int:
    """Run, store, render; 1 if windows are wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.paper_flux",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", choices=EXPERIMENTS)
    parser.add_argument("--quick", action="store_true", help="short; prints, no more")
    parser.add_argument("--times", type=int, default=30, help="each fault of --only disturbed")
    load = failure.Load()
    parser.add_argument("--rate", type=int, default=load.readings_per_s, help="of --only failure")
    parser.add_argument("--keys", type=int, default=load.keys, help="of --only failure")
    parser.add_argument("--parts", type=int, default=load.parts, help="of --only failure")
    parser.add_argument("--render", action="store_true", help="measure nothing")
    options = parser.parse_args()
    kept: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    load = failure.Load(options.rate, options.keys, options.parts)
    more: dict[str, dict[str, Any]] = {
        "disturbed": {"times": options.times},
        "failure": {"load": load},
    }
    wrong = 0
    for name in [] if options.render else [options.only] if options.only else EXPERIMENTS:
        print(f"{name} ...", flush=True)
        found = EXPERIMENTS[name](quick=options.quick, **more.get(name, {}))
        print(json.dumps(found, indent=1), flush=True)
        found |= {"at": f"{dt.datetime.now(dt.UTC):%Y-%m-%d}", "machine": machine()}
        kept[name] = found
        wrong += len(found.get("wrong", ()))
    if not options.quick and load == failure.Load():
        KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        plot(kept, FOLDER)
        (FOLDER / "flux.md").write_text(page(kept))
        print(f"written: {FOLDER / 'flux.md'}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
