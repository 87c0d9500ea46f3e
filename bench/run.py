"""Runs every bench and writes ``bench/README.md``: the machine, the figures, how to repeat each.

make bench            all of them, about fifteen minutes on two cores
make bench ARGS=codec one of them, printed, nothing written
"""

from __future__ import annotations

import datetime as dt
import os
import platform
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
BENCHES = {
    "pipeline": "The whole pipeline: proxy log to stable result",
    "outage": "Memory during an outage twenty times as long as X",
    "idle": "A deployment of one query at rest, and with 400 readings/s",
    "restart": "`kill -9` of everything, until right answers come in time again",
    "json_parse": "Messages of JSON, parsing alone",
    "json_input": "Readings of a plain topic of JSON, consumer included",
    "formats": "Messages with many readings, parsing alone",
    "columns": "Messages of columns, from the topic to checked windows",
    "codec": "The codec, per reading",
    "deltas": "Folding slices at the root",
}
NOTES = """\
A rate is sustained if every window of its phase was stable within a second of its normal time.
Latency is that of each window's first answer, seen by a consumer, after its normal time. Cores and
MB are those of each process and its children, measured over the phase. The embedded broker runs
as for `slackwater up` (optimising compiler, serial collector). Other pages: what a query costs
([queries.md](queries.md)), and other stream processors ([peers](peers/README.md)).
"""

SEPARATE = "\n# Measured separately\n"
"""The part of the page after this line is kept: those benches take too long, or too much memory."""


def main() -> int:
    """Run, print, write."""
    wanted = sys.argv[1:] or list(BENCHES)
    sections, worst = [], 0
    for name in wanted:
        print(f"\n## {BENCHES[name]} (bench/{name}.py)\n", flush=True)
        done = subprocess.run(
            [sys.executable, "-m", f"bench.{name}"],
            cwd=HERE.parent,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        print(done.stdout, flush=True)
        worst = max(worst, done.returncode)
        sections.append(
            f"## {BENCHES[name]}\n\n`.venv/bin/python -m bench.{name}`\n\n{_block(done.stdout)}\n"
        )
    if len(sections) == len(BENCHES):
        head = f"# Bench\n\n`make bench` repeats this page. {machine()}\n\n{NOTES}\n"
        page = HERE / "README.md"
        _, _, separate = page.read_text().partition(SEPARATE)
        page.write_text(head + "\n".join(sections) + SEPARATE + separate)
    return worst


def machine() -> str:
    """Describe the machine."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return (
        f"Measured on {dt.datetime.now(dt.UTC):%Y-%m-%d} on {os.cpu_count()} cores"
        f" ({model}), {memory_gib:.0f} GiB, Python {platform.python_version()}, everything on one"
        " machine."
    )


def _block(text: str) -> str:
    """Return tables unchanged, other output as code."""
    return text if "|---" in text else f"```\n{text}```\n"


if __name__ == "__main__":
    sys.exit(main())
