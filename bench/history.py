"""History at the speed of the disk: files through `slackwater up` with `clock: data`.

    python -m bench.history [hourly] [minutely] [dense] [sparse] [--readings N]

Runs `slackwater up` with one query, and submits the readings of the first window with `slackwater
ingest`: a query with `clock: data` begins with its first readings. When all processes are ready,
the rest is submitted. The time is that from this command to the last stable window, and the CPU
time of each process is that of the same period. The results are then compared with the file, window
by window.

| case | readings | of | windows |
|---|---|---|---|
| hourly | 17,420 | one sensor, one an hour: two years | 1 day |
| minutely | 525,600 | one sensor, one a minute: a year | 1 hour |
| dense | 10,000,000 | 1,000 sensors, one a second each | 1 minute |
| sparse | 10,000,000 | one sensor, one a second: 116 days | 1 minute |
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import orjson
import psutil
import pyarrow as pa
import pyarrow.csv
from bench.idle import cpu_s

from slackwater.codec.results import parse_time
from slackwater.model.names import Names
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.transport import NoAnswerError, read_range, read_to_end

BEGIN_S: Final = 1_640_995_200
"""2022-01-01 00:00:00 UTC."""
LAST_RECORDS: Final = 64
SLEEP_S: Final = 0.1
READY_S_MAX: Final = 600.0
STILL_S_MAX: Final = 120.0
"""A run without a new window for so long has failed."""
KINDS: Final = ("broker", "aggregator's JVM", "aggregator", "proxy", "host", "others")

DEPLOYMENT: Final = """\
apiVersion: slackwater/v1
clock: data
streams:
  history: {{key: {{column: sensor}}, time: {{column: at, unit: s}}, fields: [v]}}
queries:
  windows:
    from: [history]
    window: {{size: {window}}}
    aggregate: [count, sum, min, max]
    bound: 2s
    replicas: 1
"""


@dataclass(frozen=True, slots=True)
class Case:
    """Readings of some sensors, one each ``every_s``, and the windows over them."""

    readings: int
    sensors: int
    every_s: int
    window_s: int

    @property
    def window(self) -> str:
        """The window, as in a deployment file."""
        return f"{self.window_s}s"

    @property
    def windows(self) -> int:
        """The number of windows that hold readings."""
        return -(-self.readings // (self.sensors * (self.window_s // self.every_s)))

    def times(self) -> Any:
        """Times in seconds since the epoch."""
        return BEGIN_S + np.arange(self.readings) // self.sensors * self.every_s

    def keys(self) -> Any:
        """The number of each reading's sensor."""
        return np.arange(self.readings) % self.sensors

    def values(self) -> Any:
        """Values with two digits."""
        return (np.arange(self.readings, dtype=np.int64) * 7919 % 10_007) / 100

    def write(self, first: Path, rest: Path) -> None:
        """Write the readings of the first window, and the others."""
        names = pa.array([f"s{number:04d}" for number in range(self.sensors)])
        keys = pa.DictionaryArray.from_arrays(pa.array(self.keys()), names).cast(pa.string())
        table = pa.table({"sensor": keys, "at": self.times(), "v": self.values()})
        options = pa.csv.WriteOptions(quoting_style="none")
        in_first = self.sensors * (self.window_s // self.every_s)
        pa.csv.write_csv(table[:in_first], first, options)
        pa.csv.write_csv(table[in_first:], rest, options)


CASES: Final = {
    "hourly": Case(17_420, 1, 3_600, 86_400),
    "minutely": Case(525_600, 1, 60, 3_600),
    "dense": Case(10_000_000, 1_000, 1, 60),
    "sparse": Case(10_000_000, 1, 1, 60),
}


class Run:
    """`slackwater up` in a folder."""

    def __init__(self, folder: Path, case: Case, options: tuple[str, ...] = ()) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        self.bootstrap = f"127.0.0.1:{port}"
        file = folder / "deployment.yaml"
        file.write_text(DEPLOYMENT.format(window=case.window))
        self._output: IO[str] = (folder / "output").open("a")
        command = [sys.executable, "-m", "slackwater.cli.app", "up", "--port", str(port)]
        command += ["--deployment", str(file), "--data-dir", str(folder / "data"), *options]
        self.process = subprocess.Popen(command, stdout=self._output, stderr=self._output)

    def wait_for(self, text: str) -> None:
        """Wait until it has printed this."""
        deadline = time.monotonic() + READY_S_MAX
        while text not in (self.folder / "output").read_text():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"not ready:\n{(self.folder / 'output').read_text()[-2_000:]}")
            time.sleep(SLEEP_S)

    def ingest(self, file: Path) -> None:
        """Submit the file."""
        command = [sys.executable, "-m", "slackwater.cli.app", "ingest", "history", str(file)]
        subprocess.run([*command, "--data-dir", str(self.folder / "data")], check=True)

    def processes(self) -> list[psutil.Process]:
        """Return it and all its descendants."""
        above = psutil.Process(self.process.pid)
        return [above, *above.children(recursive=True)]

    def stop(self) -> None:
        """Stop it in order."""
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGINT)
            self.process.wait(60)
        self._output.close()


class Stable:
    """The stable answers, read from the end of their topic as rarely as possible."""

    def __init__(self, bootstrap: str) -> None:
        self._transport = KafkaTransport(bootstrap)
        self._log = (Names().results("windows", "stable"), 0)

    def end_us(self) -> int:
        """The end of the last stable window; 0 if there is none."""
        ends = self._transport.end_offsets([self._log], isolation="read_committed")
        end = ends[self._log]
        begin = max(0, end - LAST_RECORDS)
        try:
            last = list(
                read_range(self._transport, self._log, begin, end, isolation="read_committed")
            )
        except NoAnswerError:
            return 0
        rows = (orjson.loads(raw.value) for raw in last)
        found = [parse_time(row["window_end"]) for row in rows if row["kind"] == "boundary"]
        return max(found, default=0)

    def buckets(self) -> int:
        """The records of the orderer's stable log."""
        log = (Names().ordered("windows", 0), 0)
        return self._transport.end_offsets([log])[log]

    def check(self, case: Case) -> None:
        """Compare all rows with the readings; ``SystemExit`` if one differs."""
        place = case.keys() + case.sensors * ((case.times() - BEGIN_S) // case.window_s)
        values = case.values()
        size = case.windows * case.sensors
        wanted = {
            "count": np.bincount(place, minlength=size),
            "sum": np.bincount(place, values, minlength=size),
            "min": np.full(size, np.inf),
            "max": np.full(size, -np.inf),
        }
        np.minimum.at(wanted["min"], place, values)
        np.maximum.at(wanted["max"], place, values)
        found = {name: np.full(size, np.nan) for name in wanted}
        for raw in read_to_end(self._transport, self._log, isolation="read_committed"):
            if b'"kind":"stable"' not in raw.value:
                continue
            row = orjson.loads(raw.value)
            window = (parse_time(row["window_start"]) // 1_000_000 - BEGIN_S) // case.window_s
            at = window * case.sensors + int(row["key"][1:])
            for name, figures in found.items():
                if not np.isnan(figures[at]):
                    raise SystemExit(f"doubled: {row}")
                figures[at] = row["fields"]["v"][name]
        for name, figures in wanted.items():
            exact = np.allclose if name == "sum" else np.array_equal
            mask = wanted["count"] > 0
            if (
                not exact(found[name][mask], figures[mask])
                or not np.isnan(found[name][~mask]).all()
            ):
                raise SystemExit(f"{name} differs")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", choices=[[], *CASES], default=list(CASES))
    parser.add_argument("--keep", type=Path, help="work in this folder, and leave it")
    parser.add_argument("--readings", type=int, help="readings of each case")
    options = parser.parse_args()
    print(f"| case | readings | windows | buckets | s | readings/s | {' | '.join(KINDS)} |")
    print(f"|{'---|' * (6 + len(KINDS))}")
    for name in options.cases:
        case = CASES[name]
        if options.readings:
            case = Case(options.readings, case.sensors, case.every_s, case.window_s)
        with tempfile.TemporaryDirectory(prefix="slackwater-history-") as temporary:
            folder = options.keep or Path(temporary)
            folder.mkdir(exist_ok=True)
            seconds, used, buckets = measure(folder, case)
        shares = " | ".join(f"{used.get(kind, 0.0):.1f}" for kind in KINDS)
        print(
            f"| {name} | {case.readings:,} | {case.windows:,} | {buckets:,} | {seconds:.1f} |"
            f" {case.readings / seconds:,.0f} | {shares} |",
            flush=True,
        )


def measure(folder: Path, case: Case) -> tuple[float, Mapping[str, float], int]:
    """Return the seconds to the last window, the CPU seconds by process, and the buckets.

    All are counted from the begin of the measurement, when the pipeline can answer.
    """
    first, rest = folder / "first.csv", folder / "rest.csv"
    case.write(first, rest)
    run = Run(folder, case)
    try:
        run.wait_for(": proxies, which")
        run.ingest(first)
        run.wait_for("\nup: ")
        stable = Stable(run.bootstrap)
        before = cpu_s(run.processes())
        began = time.monotonic()
        run.ingest(rest)
        end_us = (BEGIN_S + case.windows * case.window_s) * 1_000_000
        last, changed, shown = 0, began, began
        while (reached := stable.end_us()) < end_us:
            now = time.monotonic()
            if reached > last:
                last, changed = reached, now
                done = (reached / 1e6 - BEGIN_S) / (case.windows * case.window_s)
                if now - shown > 5:
                    shown = now
                    print(f"{now - began:6.1f} s {100 * done:5.1f} %", file=sys.stderr)
            elif now - changed > STILL_S_MAX:
                raise SystemExit(f"no window since {STILL_S_MAX:.0f} s")
            time.sleep(SLEEP_S)
        seconds = time.monotonic() - began
        used = {kind: s - before.get(kind, 0.0) for kind, s in cpu_s(run.processes()).items()}
        stable.check(case)
        return seconds, used, stable.buckets()
    finally:
        run.stop()


if __name__ == "__main__":
    main()
