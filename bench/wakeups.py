"""Wake-ups of processes: the kernel's count of voluntary context switches, thread by thread.

A waiting thread gives its core up once for each time that it was woken before. The work of an idle
loop is therefore visible here, also if it takes too little CPU to be measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import psutil

_FIELD: Final = "voluntary_ctxt_switches:"
_NAMED: Final = {
    "slackwater.host": "host",
    "slackwater.proxy": "proxy",
    "slackwater_spark.app": "aggregator",
    "kafka.Kafka": "broker",
    "org.apache.spark.deploy.SparkSubmit": "aggregator's JVM",
}


def kind_of(command: Iterable[str]) -> str:
    """Return the kind of a process, by its command line; unknown ones are the tool itself."""
    return next((_NAMED[word] for word in command if word in _NAMED), "others")


def switches(pid: int) -> dict[int, int]:
    """Return voluntary context switches of each thread so far; none if the process has ended."""
    found = {}
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        try:
            text = status.read_text()
        except OSError:
            continue  # it has just ended
        line = next(line for line in text.splitlines() if line.startswith(_FIELD))
        found[int(status.parent.name)] = int(line.split()[1])
    return found


class Wakeups:
    """Adds up wake-ups between samples, by kind of process, for permanent processes."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, int], int] = {}
        self._kinds: dict[int, str] = {}
        self._woken: dict[str, int] = defaultdict(int)
        self._began_s: float | None = None
        self._looked_s = 0.0

    def look(self, processes: Iterable[psutil.Process], now_s: float) -> None:
        """Count the wake-ups since the last sample; the first one only starts."""
        for process in processes:
            try:
                kind = self._kinds.get(process.pid) or kind_of(process.cmdline())
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            self._kinds[process.pid] = kind
            for thread, count in switches(process.pid).items():
                before = self._last.get((process.pid, thread))
                self._last[process.pid, thread] = count
                if self._began_s is not None:
                    # A thread started meanwhile has its full count.
                    self._woken[kind] += count - (before or 0)
        self._began_s = now_s if self._began_s is None else self._began_s
        self._looked_s = now_s

    def per_s(self) -> Mapping[str, float]:
        """Wake-ups per second of all processes of a kind together, in descending order."""
        seconds = self._looked_s - (self._began_s or 0.0)
        if self._began_s is None or seconds <= 0:
            return {}
        rates = {kind: count / seconds for kind, count in self._woken.items()}
        return dict(sorted(rates.items(), key=lambda rate: -rate[1]))
