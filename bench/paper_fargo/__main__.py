"""Runs the experiment, and writes ``docs/results/fargo.md``.

make paper-fargo                           all parts, some 25 minutes on two cores
make paper-fargo ARGS='--only cut-3'       one of them (also: cut-6, cut-last, alone)
make paper-fargo ARGS='--rate 18300'       events/s of each sensor, as many as in the thesis
make paper-fargo ARGS='--quick'            one failure; prints, nothing is written
make paper-fargo ARGS='--render'           the page and the plot again, from the results there are
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
from pathlib import Path
from typing import Any

from bench.paper_fargo import latency
from bench.paper_fargo.page import page
from bench.paper_fargo.plots import plot
from bench.run import machine

FOLDER = Path(__file__).parents[2] / "docs" / "results"
KEPT = FOLDER / "fargo.json"


def main() -> int:
    """Run, store, render; 1 if windows are wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.paper_fargo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", choices=latency.PARTS)
    parser.add_argument("--quick", action="store_true", help="one failure; prints, no more")
    parser.add_argument("--render", action="store_true", help="measure nothing")
    parser.add_argument("--times", type=int, default=3, help="each failure")
    parser.add_argument("--rate", type=int, default=latency.PER_S, help="events/s of each sensor")
    options = parser.parse_args()
    kept: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    wrong = 0
    parts = [options.only] if options.only else ["cut-3"] if options.quick else [*latency.PARTS]
    for part in [] if options.render else parts:
        found = latency.run(part, 1 if options.quick else options.times, options.rate)
        kept[part] = found | {"at": f"{dt.datetime.now(dt.UTC):%Y-%m-%d}", "machine": machine()}
        wrong += len(found["wrong"])
        print(f"{part}: {json.dumps(found, indent=1)}", flush=True)
        if not options.quick:
            KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
            plot(kept, FOLDER)
            (FOLDER / "fargo.md").write_text(page(kept))
    if options.render:
        plot(kept, FOLDER)
        (FOLDER / "fargo.md").write_text(page(kept))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
