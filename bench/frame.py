"""Time of a table of a million rows: from the records of two topics to columns and a data frame.

    python -m bench.frame [ROWS] [KEYS]

The records are in memory, as a client has them after fetching, so that no broker is measured. Every
tenth window was answered tentatively first. Prints the seconds of each step, once; run it on an
idle machine. With a broker: `Client.frame` on a query of that many rows.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Final

import orjson

from slackwater.client.answer_table import Kinds, PartLines, answer_table
from slackwater.codec.result_columns import Table, joined, result_columns
from slackwater.codec.results import format_time

CHUNK: Final = 40_000
WINDOW_US: Final = 10_000_000
EARLY_EVERY: Final = 10
KINDS: Final[tuple[Kinds, ...]] = ("best", "exact", "all")


def lines(label: str, windows: int, keys: int) -> Iterator[bytes]:
    """Yield a topic's records; the tentative one has each tenth window."""
    seq = 0
    for window in range(0, windows, 1 if label == "stable" else EARLY_EVERY):
        start = 1_700_000_000_000_000 + window * WINDOW_US
        head = {"query": "climate", "part": 0, "epoch": 1}
        span = {"window_start": format_time(start), "window_end": format_time(start + WINDOW_US)}
        times = {name: format_time(start + WINDOW_US) for name in ("due_at", "emitted_at")}
        missing = ["room-2"] if label == "tentative" else []
        for key in range(keys):
            value = (window * 31 + key * 7) % 1000 / 7
            figures = {"count": 60, "avg": value, "min": value - 1, "max": value + 1}
            row = head | {"seq": seq, "kind": label} | span | {"key": f"room-{key}"}
            yield orjson.dumps(
                row | {"fields": {"temperature": figures}, "missing": missing} | times
            )
            seq += 1
        end = head | {"seq": seq, "kind": "boundary", "label": label} | span
        yield orjson.dumps(end | {"windows": 1, "keys": keys, "missing": missing} | times)
        seq += 1


def decoded(records: list[bytes]) -> Table:
    """Decode in chunks, as the reader of the topics does."""
    chunks = (records[at : at + CHUNK] for at in range(0, len(records), CHUNK))
    return joined([result_columns(chunk, "climate", 0, refuse) for chunk in chunks])


def refuse(index: int, reason: str) -> None:
    raise AssertionError(f"record {index}: {reason}")


def main(rows: int = 1_000_000, keys: int = 100) -> None:
    windows = rows // keys
    stable, tentative = (list(lines(label, windows, keys)) for label in ("stable", "tentative"))
    print(f"{len(stable) + len(tentative)} records")
    begun = time.perf_counter()
    parts = {0: PartLines(decoded(stable), decoded(tentative))}
    print(f"decoded      {time.perf_counter() - begun:6.2f} s")
    for kinds in KINDS:
        begun = time.perf_counter()
        table = answer_table(parts, kinds, None, None).table
        print(f"table {kinds:6} {time.perf_counter() - begun:6.2f} s, {table.num_rows} rows")
        begun = time.perf_counter()
        table.to_pandas()
        print(f"pandas       {time.perf_counter() - begun:6.2f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
