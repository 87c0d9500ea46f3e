"""Effects of a host's fragment on the others: one that is moved, raises, or is too slow.

Some queries over four streams run in one host (one replica, so that nothing is masked), and the
faults are applied to the orderer or the root of the last of them. The first answers of the others
are measured by a consumer, after their normal time: while the fragment is removed from the running
host and added again, as often as requested; while each of its steps raises; and while each sleeps
200 ms, from two seconds after the first of them on. Before each phase they are measured without
faults, because other load changes the usual values. At last the orderer of another query leaks
memory that no count of its session includes, until the supervisor drains the host into a new one;
this needs as much memory as a host may have. Every window of every query is compared with the
readings sent.

Run with ``python -m bench.isolation [--rate 10000] [--times 100] [--seconds 30] [--only-leak]``;
prints Markdown.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.paper_dpc.results import figures
from bench.paper_dpc.sources import FIELD
from bench.paper_dpc.system import System, deployment_text
from bench.spoilt_host import python_for

from slackwater.codec.results import parse_result, parse_time
from slackwater.machine.draining import Draining
from slackwater.machine.layout import host_spec
from slackwater.machine.ownhosts import OwnHosts
from slackwater.model.names import RESULT_KINDS, Names
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.service.parts import OWN_HOST

STREAMS: Final = ("s1", "s2", "s3", "s4")
QUERY: Final = "{from: [s1, s2, s3, s4], window: {size: 1s, slide: 250ms}, aggregate: [count, avg],"
KEYS: Final = 10
WARM_S: Final = 10.0
BOUND_S: Final = 2.0
AFTER_S: Final = 2.0
"""Time after the first bad turn from which the others must be as usual."""
SLEEP_S: Final = 0.2
LEAK_MIB: Final = 8
"""Leaked per step of the fragment; much more would be a long turn."""
LEAK_S_MAX: Final = 300.0
BACK_S_MAX: Final = 60.0
ALLOWED_S: Final = {"come and go": 0.1, "raise": 0.05, "sleep": 0.05, "drain": BOUND_S}
"""Maximum additional delay of the others' answers: of p99 for faults that raise or sleep, else of
the maximum."""


@dataclass(frozen=True, slots=True)
class First:
    """A window's first answer: its normal time, and the delay until it was read (s)."""

    due_s: float
    late_s: float


@dataclass
class QueryAnswers(threading.Thread):
    """Reads the results of some queries as a consumer."""

    bootstrap: str
    queries: tuple[str, ...]
    first: dict[str, dict[str, First]] = field(default_factory=lambda: defaultdict(dict))
    """By query and end of the window."""
    counted: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """Readings in stable answers."""
    stable: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """Number of stable answers per window."""

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self._lock = threading.Lock()

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        """Read until stopped."""
        reader = KafkaTransport(self.bootstrap).reader(isolation="read_committed")
        topics = (Names().results(query, kind) for query in self.queries for kind in RESULT_KINDS)
        reader.assign({(topic, 0): 0 for topic in topics})
        while True:
            records = reader.poll(5_000, 0.02)
            now_s = time.time()
            with self._lock:
                for raw in records:
                    self._take(parse_result(raw.value), now_s)

    def _take(self, row: dict[str, Any], now_s: float) -> None:
        query, end = row["query"], row.get("window_end", "")
        if row["kind"] == "stable":
            self.counted[query][end] += row["fields"][FIELD]["count"]
        elif row["kind"] == "boundary":
            due_s = parse_time(row["due_at"]) / 1e6
            self.first[query].setdefault(end, First(due_s, now_s - due_s))
            self.stable[query][end] += row["label"] == "stable"

    def late_s(self, queries: tuple[str, ...], begin_s: float, end_s: float) -> list[float]:
        """Return the delays of first answers of windows that were due then."""
        with self._lock:
            firsts = [each for query in queries for each in self.first[query].values()]
        return [each.late_s for each in firsts if begin_s < each.due_s <= end_s]

    def wrong(self, begin_s: float, end_s: float, per_window: int) -> list[str]:
        """Return windows of that time without exactly one stable answer of all readings."""
        found = []
        with self._lock:
            for query in self.queries:
                for end, one in self.first[query].items():
                    times, counted = self.stable[query][end], self.counted[query][end]
                    is_of_then = begin_s < one.due_s <= end_s
                    if is_of_then and (times, counted) != (1, per_window):
                        found.append(f"{query} {end}: stable {times} times, {counted} readings")
        return found


class Bench:
    """One run over a system that has been started."""

    def __init__(self, system: System, queries: tuple[str, ...], file: Path, rate: int) -> None:
        self.system, self.file, self.rate = system, file, rate
        self.others, self.bad = queries[:-1], queries[-1]
        self.answers = QueryAnswers(system.transport.bootstrap, queries)
        self.usual: dict[str, float] = {}
        self.failed = False
        self._seconds = 0.0
        self.answers.start()

    def run(self, times: int, seconds: float, *, only_leak: bool = False) -> None:
        """All phases, or the last one; prints a line for each."""
        self._wait_in_time()
        time.sleep(WARM_S)
        self._seconds, begin_s = seconds, time.time()
        spoilt = () if only_leak else (f"orderer/{self.bad}.0.a", f"root/{self.bad}.0")
        for fragment in spoilt:
            self._phase("come and go", fragment, lambda of: self._come_and_go(of, times))
            self._phase("raise", fragment, lambda of: self._spoil(f"{of} raise", seconds))
            self._phase("sleep", fragment, lambda of: self._spoil(f"{of} sleep {SLEEP_S}", seconds))
        # Those of the last query are in hosts of their own by now.
        self._phase("drain", f"orderer/{self.others[-1]}.0.a", self._leak)
        end_s = time.time()
        self.system.feeder.stop()
        time.sleep(5.0)
        wrong = self.answers.wrong(begin_s, end_s - AFTER_S, self.rate)
        windows = sum(map(len, self.answers.first.values()))
        self.failed |= bool(wrong)
        print(f"\n{windows} windows; lost, doubled or wrong: {len(wrong)}")
        print("\n".join(wrong[:10]))

    def _wait_in_time(self) -> None:
        """Wait until the newest answers of all come within a second."""
        until_s = time.monotonic() + BACK_S_MAX
        while time.monotonic() < until_s:
            time.sleep(1.0)
            now_s = time.time()
            recent = [
                self.answers.late_s((query,), now_s - 3.0, now_s)
                for query in (*self.others, self.bad)
            ]
            if all(late and max(late) < 1.0 for late in recent):
                return
        raise SystemExit(f"answers do not come in time within {BACK_S_MAX:g} s")

    def _phase(self, what: str, fragment: str, act: Callable[[str], float]) -> None:
        """Run a phase.

        ``act`` returns the time from which the others must be as usual (wall time).
        """
        time.sleep(AFTER_S)
        begin_s, self.usual = time.time(), {}
        time.sleep(self._seconds)
        self.usual = self._row("as usual", "", begin_s)
        since_s = act(fragment)
        time.sleep(AFTER_S)
        self._row(what, fragment, since_s)
        if what != "drain":
            self._wait_ready(fragment)

    def _row(self, what: str, fragment: str, begin_s: float) -> dict[str, float]:
        end_s = time.time() - 1.0  # all due answers were read
        found = figures(self.answers.late_s(self.others, begin_s, end_s))
        own = max(self.answers.late_s((self.bad,), begin_s, end_s), default=float("nan"))
        which = "p99" if what in ("raise", "sleep") else "max"
        worse_s = found[which] - self.usual.get(which, found[which])
        ok = worse_s < ALLOWED_S.get(what, float("inf"))
        self.failed |= not ok
        cells = [what, fragment, str(found["n"])]
        cells += [f"{found[each] * 1000:.0f}" for each in ("p50", "p99", "max")]
        cells += [f"{worse_s * 1000:+.0f} {which}", "yes" if ok else "NO", f"{own * 1000:.0f}"]
        print("| " + " | ".join(cells) + " |", flush=True)
        return found

    def _come_and_go(self, fragment: str, times: int) -> float:
        begin_s = time.time()
        parts = self.system.supervisor.parts("host/0")
        assert fragment in parts, f"{fragment} has been moved"
        complete, rest = (
            host_spec("host/0", some, self.system.launch)
            for some in (parts, [part for part in parts if part != fragment])
        )
        for _ in range(times):
            was_us = self._started_at(fragment)
            self.system.serve(rest)
            self.system.serve(complete)
            self._wait_ready(fragment, was_us)
        return begin_s

    def _leak(self, fragment: str) -> float:
        """Leak until the host has been drained; all answers from the first leaked byte on count."""
        begin_s, supervisor = time.time(), self.system.supervisor

        def is_noticed() -> bool:
            events = list(supervisor.events)
            return any(event.event.endswith("; moving its fragments") for event in events)

        host = supervisor.process_of(fragment)
        self.file.write_text(f"{fragment} swell {LEAK_MIB}")
        self._wait(is_noticed)
        self.file.unlink()
        self._wait(lambda: host not in supervisor.pids())
        print(f"{host} was drained after {time.time() - begin_s:.1f} s", flush=True)
        return begin_s

    @staticmethod
    def _wait(holds: Callable[[], bool]) -> None:
        until_s = time.monotonic() + LEAK_S_MAX
        while not holds():
            if time.monotonic() > until_s:
                raise SystemExit(f"the host has not been drained after {LEAK_S_MAX:g} s")
            time.sleep(0.1)

    def _started_at(self, fragment: str) -> int:
        beat = self.system.listener.latest(fragment)
        return -1 if beat is None else beat.started_at

    def _wait_ready(self, fragment: str, later_than_us: int = -1) -> None:
        until_s = time.monotonic() + BACK_S_MAX
        while not (
            self.system.listener.ready(fragment) and self._started_at(fragment) > later_than_us
        ):
            if time.monotonic() > until_s:
                raise SystemExit(f"{fragment} is not back after {BACK_S_MAX:g} s")
            time.sleep(0.01)

    def _spoil(self, line: str, seconds: float) -> float:
        fragment = line.split(maxsplit=1)[0]
        self.file.write_text(line)
        begin_s = time.time()
        while time.time() - begin_s < seconds + AFTER_S:
            beat = self.system.listener.latest(fragment)
            if beat is not None and OWN_HOST in beat.detail:
                print(f"{fragment} began in its own host after {time.time() - begin_s:.1f} s")
                break
            time.sleep(0.05)
        time.sleep(max(0.0, begin_s + seconds + AFTER_S - time.time()))
        self.file.unlink()
        return begin_s + AFTER_S


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=10_000, help="readings/s of all streams")
    parser.add_argument("--queries", type=int, default=5)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each phase")
    parser.add_argument("--only-leak", action="store_true", help="the last phase alone")
    parser.add_argument("--keep", type=Path, help="leave data and logs in this folder")
    options = parser.parse_args()
    queries = tuple(f"q{number}" for number in range(options.queries))
    text = deployment_text(STREAMS, dict.fromkeys(queries, f"{QUERY} bound: 2s, replicas: 1}}"))
    print(f"{len(queries)} queries in one host, {options.rate} readings/s, bound 2 s\n")
    print("| what | to | others' windows | p50 ms | p99 | max | than usual | ok | its own max |")
    print("|" + "---|" * 9, flush=True)
    with tempfile.TemporaryDirectory(prefix="slackwater-isolation-") as made:
        folder = options.keep or Path(made)
        file = folder / "spoilt"
        system = System(
            folder, text, per_s=options.rate // len(STREAMS), keys=KEYS, python=python_for(file)
        )
        system.start()
        watch = OwnHosts(system.supervisor, system.listener, system.launch)
        draining = Draining(system.supervisor, system.listener, system.launch)
        watching = [system.in_background(each.run()) for each in (watch, draining)]
        try:
            bench = Bench(system, queries, file, options.rate)
            bench.run(options.times, options.seconds, only_leak=options.only_leak)
        finally:
            for each in watching:
                each.cancel()
            system.stop()
    return int(bench.failed)


if __name__ == "__main__":
    sys.exit(main())
