"""slackwater beside other stream processors: same broker, same readings, same checker.

``make bench-peers`` runs all and writes bench/peers/README.md; with ``ARGS="--peers flink,quix
--only silence"`` it runs a part and replaces those rows. What a peer needs is fetched when it is
first run.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.peers import workload
from bench.peers.check import SIZE_MS, PeerAnswer, Verdict, judge, windows
from bench.peers.workers import HERE, PEERS, Job, Peer, Seen, Worker
from bench.peers.workload import Feeder
from bench.run import machine

from slackwater.machine.broker import EmbeddedBroker
from slackwater.runtime.logs.topics import TopicLayout, ensure_topics

WARM_S: Final = 10.0
"""A live run begins when answers have been fresh for this time."""
FRESH_S: Final = 8.0
START_S_MAX: Final = 180.0
SILENT_S: Final = 15
LIVE_S: Final = 30
"""400 readings/s in it are 12,000."""
SILENCE_PER_S: Final = 400
KILL_PER_S: Final = 2_000
AFTER_S: Final = 15.0
"""Time beyond the grace for which late answers are waited for at the end of a live run."""
QUIET_S: Final = 30.0
"""A backlog is done after this time without answers."""
BACKLOG_S_MAX: Final = 900.0
GRACE_MS: Final = 2_000
FIGURES: Final = HERE / "figures.json"
"""The last figures, by scenario and peer; the page is made from them, so that parts can be measured
again."""

RunFigures = dict[str, dict[str, list[str]]]


@dataclass(frozen=True)
class Table:
    """A scenario: its text and the columns after the peer's name."""

    title: str
    text: str
    columns: tuple[str, ...]
    peers: tuple[str, ...]
    row: Callable[[Peer, argparse.Namespace], list[str]]


def main() -> int:
    """Measure, print, write."""
    options = _options()
    chosen = options.peers.split(",") if options.peers else list(PEERS)
    only = options.only.split(",") if options.only else list(TABLES)
    missing = _fetch(chosen)
    figures: RunFigures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    for name in only:
        table = TABLES[name]
        print(f"\n## {table.title}\n\n{_header(table)}", flush=True)
        for key in [key for key in table.peers if key in chosen]:
            cells = _cells(key, table, options, missing)
            cells.append(f"{dt.datetime.now(dt.UTC):%Y-%m-%d}{options.note}")
            print(_line(PEERS[key].title, *cells), flush=True)
            figures.setdefault(name, {})[key] = cells
            if options.write:
                FIGURES.write_text(json.dumps(figures, indent=1) + "\n")
                (HERE / "README.md").write_text(page(figures))
    return 0


def page(figures: RunFigures) -> str:
    """Return the results page: each row as last measured."""
    settings = "\n".join(_line(peer.title, peer.settings) for peer in PEERS.values())
    parts = [HEAD.format(machine=machine(), settings=settings)]
    for name, table in TABLES.items():
        rows = figures.get(name, {})
        none = [*[""] * len(table.columns), "not measured"]
        lines = [_line(PEERS[key].title, *rows.get(key, none)) for key in table.peers]
        parts += [f"## {table.title}", table.text, "\n".join([_header(table), *lines])]
    return "\n\n".join(parts) + "\n"


def _header(table: Table) -> str:
    columns = ("", *table.columns, "measured")
    return f"{_line(*columns)}\n|{'---|' * len(columns)}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", default="", help=f"of {', '.join(PEERS)}")
    parser.add_argument("--only", default="", help=f"of {', '.join(TABLES)}")
    parser.add_argument("--readings", type=int, default=6_000_000, help="of the backlog")
    parser.add_argument(
        "--no-write", dest="write", action="store_false", help="print only, leave the page"
    )
    parser.add_argument(
        "--note", default="", help="put behind the date, such as ' (shared machine)'"
    )
    parser.add_argument("--keep", type=Path, help="leave data and logs in folders here")
    return parser.parse_args()


def _fetch(chosen: list[str]) -> dict[str, str]:
    """Fetch the peers' software; return by peer the reason if it is unavailable."""
    missing = {}
    for key in chosen:
        try:
            PEERS[key].fetch()
        except (OSError, subprocess.CalledProcessError) as error:
            missing[key] = f"could not be fetched: {error}"
    return missing


def _cells(
    key: str, table: Table, options: argparse.Namespace, missing: dict[str, str]
) -> list[str]:
    if key in missing:
        return [missing[key], *[""] * (len(table.columns) - 1)]
    try:
        return table.row(PEERS[key], options)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        reason = str(error).splitlines()[0]
        return [f"failed: {reason}", *[""] * (len(table.columns) - 1)]


def _line(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


@contextlib.contextmanager
def _broker(peer: Peer, options: argparse.Namespace) -> Iterator[tuple[Path, str]]:
    """Start a new broker with the topics, and a folder for the worker."""
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(tempfile.TemporaryDirectory(prefix="slackwater-peers-"))
        if options.keep is None:
            folder = Path(made)
        else:
            options.keep.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix=f"{peer.title.split()[0]}-", dir=options.keep))
        broker = stack.enter_context(
            EmbeddedBroker(folder / "broker", heap_mib_max=1_024, runs_long=True)
        )
        specs = [TopicLayout(workload.TOPIC, workload.SOURCES, {}), TopicLayout("answers", 1, {})]
        ensure_topics(broker.bootstrap, specs)
        yield folder, broker.bootstrap


# ------------------------------------------------------------------------------- throughput


def throughput(peer: Peer, options: argparse.Namespace) -> list[str]:
    """Measure two backlogs, one a sixth of the other: the difference excludes the start."""
    count = options.readings // peer.backlog_divisor
    short_s, _ = backlog(peer, options, count // 6)
    long_s, verdict = backlog(peer, options, count)
    rate = (count - count // 6) / (long_s - short_s)
    cells = [f"{rate:,.0f}", f"{count / long_s:,.0f}", f"{count:,}", f"{long_s:.1f}"]
    return [*cells, *_exact(verdict)]


def backlog(peer: Peer, options: argparse.Namespace, count: int) -> tuple[float, Verdict]:
    """Return the seconds from the worker's start to its last answer."""
    span_ms = count * 1_000 // workload.BACKLOG_PER_S
    start_ms = (int(time.time()) - 3_600) * 1_000 - span_ms
    with _broker(peer, options) as (folder, bootstrap):
        workload.fill(bootstrap, count, start_ms)
        expected = windows(workload.backlog(count, start_ms))
        worker = Worker(peer, Job(bootstrap, folder, GRACE_MS, sources=False))
        seen = Seen(bootstrap, peer.topics)
        began_s = time.time()
        worker.start()
        seen.start()
        try:
            wait_quiet(worker, seen, len(expected))
        finally:
            worker.kill()
            seen.stop()
    answers = [answer for answer in seen.answers if answer.place in expected]
    last_s = max((answer.seen_s for answer in answers if not answer.marked), default=began_s)
    return last_s - began_s, judge(expected, answers)


def wait_quiet(worker: Worker, seen: Seen, count: int) -> None:
    """Wait for this number of answers, or until there are no more.

    Rows are parsed only when there are enough of them, or no more arrive.
    """
    deadline_s = time.time() + BACKLOG_S_MAX
    rows, since_s = 0, time.time()
    while time.time() < deadline_s:
        worker.check_alive()
        if seen.rows > rows:
            rows, since_s = seen.rows, time.time()
        quiet = time.time() - since_s > QUIET_S
        if rows >= count or quiet:
            final = {answer.place for answer in seen.answers if not answer.marked}
            if len(final) >= count or (final and quiet):
                return
        time.sleep(0.25)


# ------------------------------------------------------------------------------------- live


@dataclass
class Live:
    """A worker that has warmed up under load."""

    grace_s: float
    worker: Worker
    feeder: Feeder
    seen: Seen

    def verdict(self, from_ms: int, to_ms: int) -> Verdict:
        """Return the verdict on the windows of a time, after waiting for late answers."""
        readings = [each for each in list(self.feeder.sent) if from_ms <= each[0] < to_ms]
        expected = windows(readings)
        deadline_s = time.time() + self.grace_s + AFTER_S
        while time.time() < deadline_s:
            self.worker.check_alive()
            verdict = judge(expected, self._answers(from_ms, to_ms))
            if verdict.exact and not verdict.readings_lost:
                break
            time.sleep(0.5)
        return judge(expected, self._answers(from_ms, to_ms))

    def _answers(self, from_ms: int, to_ms: int) -> list[PeerAnswer]:
        return [each for each in list(self.seen.answers) if from_ms <= each.place[1] < to_ms]


@contextlib.contextmanager
def _live(peer: Peer, options: argparse.Namespace, per_s: int, grace_ms: int) -> Iterator[Live]:
    """Start, feed, and wait until answers have been fresh for a while."""
    with _broker(peer, options) as (folder, bootstrap):
        live = Live(
            grace_ms / 1e3,
            Worker(peer, Job(bootstrap, folder, grace_ms)),
            Feeder(bootstrap, per_s),
            Seen(bootstrap, peer.topics),
        )
        live.worker.start()
        live.feeder.start()
        live.seen.start()
        try:
            _wait_fresh(live, live.grace_s + FRESH_S)
            yield live
        finally:
            live.feeder.stop()
            live.worker.kill()
            live.seen.stop()


def _wait_fresh(live: Live, late_s_max: float) -> None:
    deadline_s, since_s = time.time() + START_S_MAX, time.time()
    while time.time() - since_s < WARM_S:
        if time.time() > deadline_s:
            raise RuntimeError("answers have not become fresh")
        live.worker.check_alive()
        newest_ms = max((each.place[1] for each in list(live.seen.answers)), default=0)
        if time.time() - newest_ms / 1e3 > late_s_max:
            since_s = time.time()
        time.sleep(0.1)


def _sleep_until(ms: int) -> None:
    time.sleep(max(0.0, ms / 1e3 - time.time()))


def silence(peer: Peer, options: argparse.Namespace, grace_ms: int = GRACE_MS) -> list[str]:
    """One of four sources is silent for 15 s, and then delivers its readings."""
    with _live(peer, options, SILENCE_PER_S, grace_ms) as live:
        from_ms = (int(time.time()) + 2) * SIZE_MS
        silent_ms = from_ms + 5_000
        live.feeder.silence(silent_ms, silent_ms + SILENT_S * 1_000)
        to_ms = from_ms + LIVE_S * 1_000
        _sleep_until(to_ms)
        verdict = live.verdict(from_ms, to_ms)
    unmarked = verdict.partial - verdict.partial_marked
    return [
        f"{verdict.readings_lost:,}",
        f"{verdict.lost + verdict.wrong} of {verdict.windows}",
        f"{unmarked:,}",
        f"{verdict.partial_marked:,}",
        f"{verdict.first_late_s:.2f}",
    ]


def patience(peer: Peer, options: argparse.Namespace) -> list[str]:
    """The same with a grace longer than the silence."""
    return silence(peer, options, (SILENT_S + 5) * 1_000)


def kill(peer: Peer, options: argparse.Namespace) -> list[str]:
    """`kill -9` the worker, and restart it at once."""
    with _live(peer, options, KILL_PER_S, GRACE_MS) as live:
        from_ms = (int(time.time()) - 5) * SIZE_MS
        time.sleep(0.5)
        killed_s = time.time()
        live.worker.kill()
        live.worker.start()
        right_s = _next_right(live, killed_s)
        to_ms = int(max(right_s, killed_s + 15)) * SIZE_MS
        _sleep_until(to_ms)
        verdict = live.verdict(from_ms, to_ms)
        usual = _usual_late_s(live.seen.answers, killed_s)
    cells = [f"{usual:.1f}", f"{right_s - killed_s:.1f}", *_exact(verdict)]
    return [*cells, f"{verdict.readings_lost:,}"]


def _next_right(live: Live, killed_s: float) -> float:
    """Return the time of the first correct answer of a window that ended after the kill."""
    deadline_s = time.time() + START_S_MAX
    while time.time() < deadline_s:
        live.worker.check_alive()
        low_ms, high_ms = int(killed_s) * 1_000, int(time.time()) * 1_000
        readings = [each for each in list(live.feeder.sent) if low_ms <= each[0] < high_ms]
        expected = windows(readings)
        for each in list(live.seen.answers):
            right = expected.get(each.place)
            if right is not None and not each.marked and each.figures.equals(right):
                return each.seen_s
        time.sleep(0.1)
    raise RuntimeError(f"no right answer within {START_S_MAX:.0f} s of the kill")


def _usual_late_s(answers: list[PeerAnswer], killed_s: float) -> float:
    """Return the median delay of the answers read in the 8 s before the kill."""
    return statistics.median(
        each.seen_s - (each.place[1] + SIZE_MS) / 1e3
        for each in answers
        if killed_s - 8 < each.seen_s < killed_s
    )


def _exact(verdict: Verdict) -> list[str]:
    return [f"{verdict.windows:,}", *map(str, (verdict.wrong, verdict.doubled, verdict.lost))]


FINAL: Final = ("slackwater", "streams", "flink", "spark", "quix")
TABLES: Final = {
    "throughput": Table(
        "Throughput",
        "A backlog of messages of about 52 bytes, 1,000 sensors over four partitions by sensor, 100"
        " readings a window. Seconds from the worker's start to the last answer; the rate without"
        " the start is that of the difference between this backlog and one of a sixth.",
        ("readings/s", "with the start", "readings", "s", "windows", "wrong", "doubled", "lost"),
        FINAL,
        throughput,
    ),
    "silence": Table(
        "A source silent for 15 s, grace 2 s",
        "12,000 readings in 30 s from four sources, one partition each; every sensor is heard by"
        " all of them. One source is silent for 15 s and then delivers what it has. (Kafka Streams"
        " keeps time by partition and Quix by key: a sensor that only one source hears would wait"
        " there, and lose nothing.)",
        (
            *("readings lost", "windows wrong for ever", "partial answers unmarked"),
            *("partial answers marked", "latest first answer, s after the window"),
        ),
        (*FINAL, "flink-waits", "pathway"),
        silence,
    ),
    "patience": Table(
        "A source silent for 15 s, grace 20 s",
        "The same, with a grace (watermark delay, idle time-out) longer than the silence.",
        (
            *("readings lost", "windows wrong for ever", "partial answers unmarked"),
            *("partial answers marked", "latest first answer, s after the window"),
        ),
        (*FINAL[1:], "streams-updates", "quix-updates"),
        patience,
    ),
    "kill": Table(
        "`kill -9` of the worker under 2,000 readings/s, grace 2 s",
        "All processes of the worker are killed at once, and the same command is given again at"
        " once; the broker lives. The next right answer is of a window that ended after the kill.",
        (
            *("usual answer, s after the window", "next right answer, s after the kill"),
            *("windows", "wrong", "doubled", "lost", "readings lost"),
        ),
        FINAL,
        kill,
    ),
}
HEAD: Final = """\
# slackwater beside other stream processors

`make bench-peers` repeats this page, `make bench-peers ARGS="--peers flink,quix --only silence"`
some of its rows. What the peers need is fetched by the first run (Maven, pip), never by `make
setup`.

{machine}

One broker (the embedded one), one generator (`workload.py`) and one checker (`check.py`) for all;
windows of a second by sensor with count, avg, min and max. *Grace* is how long a window waits for
late readings: slackwater's bound X, and what the others call grace period or watermark delay. An
answer is *partial* if it lacks readings, *marked* if it is labelled tentative; a window is *wrong
for ever* if its last unmarked answer is not right. The figures of a start and of a kill depend on
what else runs on the machine: rows say so where it was shared.

| | settings |
|---|---|
{settings}"""


if __name__ == "__main__":
    sys.exit(main())
