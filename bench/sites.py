"""Two sites and a centre, each with a Kafka of its own, over links that are thin and cut.

    python -m bench.sites [--keys 500] [--per-tick 2] [--thin 120] [--cut 120] [--flap 0] [--sizes]

Each site has three streams and ``--keys`` keys; a window of 10 s has average, minimum and maximum
of each. Between the uplinks of a site and the centre's broker is a relay with 256 kbit/s and 50 ms
in each direction, which counts bytes. Phases, each of as many seconds as its option has:

* ``--thin``: nothing fails. Bytes on each link, and the time from a window's normal time until the
  centre's answer is read.
* ``--cut``: the link of the first site is cut, and heals.
* ``--flap``: its link is up for 2 s and cut for 3 s, with 200 ms and 1 % of the segments lost.

At the end every row of the centre, and of the first site, is compared with the readings.
``--sizes`` prints what one window would take on the link in other forms, and starts nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson
import psutil
from bench.site_load import Sending, SiteLoad
from bench.site_sizes import print_sizes
from confluent_kafka import Consumer, TopicPartition
from tests.support.linked_broker import Link, linked_broker
from tests.support.relay import FROM_TARGET, TO_TARGET
from tests.support.starting import make_topics

from slackwater.codec.results import parse_time
from slackwater.machine.broker import EmbeddedBroker
from slackwater.machine.process import spawn
from slackwater.model.names import RESULT_KINDS, Names

SITES: Final = ("north", "south")
SIZE_MS: Final = 10_000
BOUND_S: Final = 4
THIN: Final = {"bytes_per_s_max": 32_000.0, "delay_s": 0.05, "lost": 0.0}
FLAPPING: Final = {"bytes_per_s_max": 32_000.0, "delay_s": 0.2, "lost": 0.01}
UP_S, DOWN_S = 2.0, 3.0
START_S_MAX: Final = 240.0
HEALED_S_MAX: Final = 300.0
HEADERS_BYTES: Final = 40
"""Of IPv4 and TCP, for each segment."""
SEGMENT_BYTES: Final = 1_460

STREAM: Final = """\
  {name}: {{site: {site}, topic: {{name: {name}, format: json-columns}}, key: {{field: key}},
    time: {{field: at, unit: ms}}, fields: [x], disorder: 100ms, expect_every: 1s}}
"""
QUERY: Final = f"""\
queries:
  lab: {{{{from: [{{streams}}], window: {{{{size: 10s}}}}, aggregate: [count, avg, min, max],
    bound: {BOUND_S}s, replicas: 1, children: sites, mergers: 2}}}}
"""


def deployment(loads: Sequence[SiteLoad], links: Sequence[Link]) -> str:
    """Return the file."""
    lines = ["apiVersion: slackwater/v1\nsites:\n"]
    for load, link in zip(loads, links, strict=True):
        lines.append(f'  {load.site}: {{centre: "{link.address}"}}\n')
    lines.append("streams:\n")
    lines += [STREAM.format(name=n, site=of.site) for of in loads for n in of.streams]
    lines.append(QUERY.format(streams=", ".join(n for of in loads for n in of.streams)))
    return "".join(lines)


@dataclass
class FirstAnswer:
    """The first answer of a window: when it was read, after its normal time, and what it lacks."""

    late_s: float
    label: str
    missing: tuple[str, ...]


@dataclass
class Answers:
    """The answers of the query at one place, as a consumer reads them."""

    first: dict[int, FirstAnswer] = field(default_factory=dict)
    """By the start of the window, in ms."""
    stable_at: dict[int, float] = field(default_factory=dict)
    """When the exact answer was read."""
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    doubled: int = 0

    def take(self, line: dict[str, Any], read_at: float) -> None:
        """Take a record of results."""
        kind = line["kind"]
        if kind == "stable":
            of = self.rows.setdefault(start_of(line), {})
            self.doubled += line["key"] in of
            of[line["key"]] = line["fields"]["x"]
        elif kind == "boundary":
            late_s = read_at - parse_time(line["due_at"]) / 1e6
            size = SIZE_MS
            starts = range(start_of(line), parse_time(line["window_end"]) // 1_000, size)
            for start in starts:
                given = FirstAnswer(late_s, line["label"], tuple(line.get("missing", ())))
                self.first.setdefault(start, given)
                if line["label"] == "stable":
                    self.stable_at.setdefault(start, read_at)

    def in_phase(self, since_s: float, until_s: float) -> list[FirstAnswer]:
        """Return the first answers of the windows that end in this time."""
        ends = ((start + SIZE_MS) / 1e3 for start in self.first)
        pairs = zip(ends, self.first.values(), strict=True)
        return [answer for end, answer in pairs if since_s <= end < until_s]


def start_of(line: dict[str, Any]) -> int:
    """Return the start of a record's window, in ms."""
    return parse_time(line["window_start"]) // 1_000


class Place:
    """What runs at the centre, or at a site: ``slackwater up`` on a broker, and its answers."""

    def __init__(
        self, path: Path, folder: Path, broker: EmbeddedBroker, site: str | None = None
    ) -> None:
        command = [sys.executable, "-m", "slackwater.cli.app", "up", str(path)]
        command += ["--bootstrap", broker.bootstrap, "--data-dir", str(folder / "data")]
        folder.mkdir()
        with (folder / "output").open("wb") as out:
            given = command + (["--site", site] if site else [])
            self._up = spawn(given, stdout=out, stderr=subprocess.STDOUT)
        self._process, self._broker = psutil.Process(self._up.pid), psutil.Process(broker.pid)
        self.answers = Answers()
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "bench",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 1_000,
                "log_level": 0,
            }
        )
        self._is_assigned = False

    def read(self) -> None:
        """Read what has been answered."""
        if not self._is_assigned:
            topics = [Names().results("lab", kind) for kind in RESULT_KINDS]
            known = self._consumer.list_topics(timeout=5).topics
            if not all(topic in known for topic in topics):
                time.sleep(0.2)
                return
            self._consumer.assign([TopicPartition(topic, 0, 0) for topic in topics])
            self._is_assigned = True
        for message in self._consumer.consume(2_000, 0.01):
            value, now = message.value(), time.time()
            if message.error() is None and value is not None:
                self.answers.take(orjson.loads(value), now)

    def _hosts(self) -> Iterator[psutil.Process]:
        for process in self._process.children(recursive=True):
            try:
                if "slackwater.host" in process.cmdline() or "python" in process.name():
                    yield process
            except psutil.Error:
                continue

    @property
    def mib(self) -> float:
        """The memory of its Python processes, in MiB."""
        found = 0.0
        for process in self._hosts():
            try:
                found += process.memory_info().rss / 2**20
            except psutil.Error:
                continue
        return found

    def cpu_s(self) -> float:
        """The CPU time of all its processes, and of its broker."""
        found = 0.0
        for process in (self._broker, self._process, *self._process.children(recursive=True)):
            try:
                found += sum(process.cpu_times()[:2])
            except psutil.Error:
                continue
        return found

    def check_runs(self) -> None:
        """Raise SystemExit if `up` has ended."""
        if self._up.poll() is not None:
            raise SystemExit(f"up has ended with {self._up.poll()}")

    def close(self) -> None:
        """Stop it."""
        self._consumer.close()
        self._up.terminate()
        try:
            self._up.wait(60)
        except subprocess.TimeoutExpired:
            self._up.kill()


@dataclass
class Bench:
    """All places, links and loads."""

    centre: Place
    north: Place
    south: Place
    links: list[Link]
    loads: list[SiteLoad]
    sending: list[Sending]

    @property
    def places(self) -> tuple[Place, Place, Place]:
        """The centre first."""
        return self.centre, self.north, self.south

    def read_until(self, holds: Any, what: str, wait_s_max: float) -> None:
        """Read answers until something holds."""
        give_up = time.monotonic() + wait_s_max
        while not holds():
            for place in self.places:
                place.check_runs()
                place.read()
            if time.monotonic() > give_up:
                last = sorted(self.centre.answers.first.items())[-3:]
                raise SystemExit(f"waited in vain until {what}; last answers {last}")

    def read_for(self, seconds: float) -> None:
        """Read answers for a time."""
        until = time.monotonic() + seconds
        self.read_until(lambda: time.monotonic() >= until, "the time is over", seconds + 60)

    def carried(self, link: int) -> tuple[int, int, int]:
        """Return the bytes to the centre and from it, and the segments of both."""
        relay = self.links[link].relay
        segments = sum(
            max(n, b // SEGMENT_BYTES) for n, b in zip(relay.segments, relay.carried, strict=True)
        )
        return relay.carried[TO_TARGET], relay.carried[FROM_TARGET], segments

    def set_links(self, given: dict[str, float]) -> None:
        """Set the rate, delay and loss of the links."""
        for link in self.links:
            for name, value in given.items():
                setattr(link.relay, name, value)


@contextmanager
def running(folder: Path, loads: list[SiteLoad]) -> Iterator[Bench]:
    """Start all; the links are fast at first."""
    with ExitStack() as stack:
        own = [
            stack.enter_context(EmbeddedBroker(folder / f"kafka-{of.site}", runs_long=True))
            for of in loads
        ]
        broker, links = stack.enter_context(
            linked_broker(folder / "kafka", len(loads), runs_long=True)
        )
        path = folder / "sites.yaml"
        path.write_text(deployment(loads, links))
        stack.push(_show_ends(folder))
        places = []
        for at, of in ((broker, None), *zip(own, loads, strict=True)):
            if of is not None:
                make_topics(at.bootstrap, of.streams)
            name = of.site if of else "centre"
            place = Place(path, folder / name, at, of.site if of else None)
            places.append(stack.enter_context(closing(place)))
        _await_up(folder, places)
        sending = [Sending(of, at.bootstrap) for of, at in zip(loads, own, strict=True)]
        for each in sending:
            stack.callback(each.stop)
        bench = Bench(places[0], places[1], places[2], links, loads, sending)
        began = time.time()
        bench.read_until(
            lambda: len(bench.centre.answers.stable_at) >= 2, "two exact answers", START_S_MAX
        )
        print(f"first exact answers after {time.time() - began:.0f} s", flush=True)
        yield bench


def _await_up(folder: Path, places: Sequence[Place]) -> None:
    """Wait until all are ready: else a start has to catch up with the load."""
    give_up = time.monotonic() + START_S_MAX
    for name, place in zip(("centre", *SITES), places, strict=True):
        while "\nup: " not in (folder / name / "output").read_text():
            place.check_runs()
            if time.monotonic() > give_up:
                raise SystemExit(f"{name} is not ready")
            time.sleep(0.5)


def _show_ends(folder: Path) -> Callable[..., None]:
    """Return what shows the last lines of all outputs if the block raises an error."""

    def show(kind: object, *_: object) -> None:
        for name in ("centre", *SITES) if kind is not None else ():
            text = (folder / name / "output").read_text()[-3_000:]
            print(f"--- {name}\n{text}", file=sys.stderr)

    return show


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=500)
    parser.add_argument("--per-tick", type=int, default=2)
    parser.add_argument("--thin", type=int, default=120)
    parser.add_argument("--cut", type=int, default=120)
    parser.add_argument("--flap", type=int, default=0)
    parser.add_argument("--sizes", action="store_true")
    of = parser.parse_args()
    loads = [SiteLoad(site, of.keys, of.per_tick) for site in SITES]
    if of.sizes:
        print_sizes(loads[0], SIZE_MS)
        return
    print(f"{sum(load.per_s for load in loads):,} readings/s, {of.keys} keys a site", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="slackwater-sites-") as folder,
        running(Path(folder), loads) as bench,
    ):
        bench.set_links(THIN)
        bench.read_for(15)
        per_window = thin(bench, of.thin)
        if of.cut:
            cut(bench, of.cut, per_window)
        if of.flap:
            flap(bench, of.flap, per_window)
        check(bench)


def thin(bench: Bench, seconds: int) -> list[float]:
    """Print bytes and times without a failure; return a window's bytes to the centre, by link."""
    before, since = [bench.carried(link) for link in (0, 1)], time.time()
    cpu = [place.cpu_s() for place in bench.places]
    bench.read_for(seconds)
    took = time.time() - since
    after = [bench.carried(link) for link in (0, 1)]
    used = [place.cpu_s() - was for place, was in zip(bench.places, cpu, strict=True)]
    print(f"\nthin, {took:.0f} s: cores of centre and sites {[round(u / took, 2) for u in used]}")
    print("| link | B/s up | B/s down | both, with headers |\n|---|---|---|---|")
    sums = [0.0] * 3
    for link, (was, now) in enumerate(zip(before, after, strict=True)):
        up, down, segments = ((b - a) / took for a, b in zip(was, now, strict=True))
        # Each segment is acknowledged by another one, at most.
        both = up + down + segments * 2 * HEADERS_BYTES
        sums = [total + each for total, each in zip(sums, (up, down, both), strict=True)]
        print(f"| {SITES[link]} | {up:.0f} | {down:.0f} | {both:.0f} |")
    print(f"| both | {sums[0]:.0f} | {sums[1]:.0f} | {sums[2]:.0f} |")
    for name, place in (("centre", bench.centre), ("north", bench.north)):
        print(f"{name}: {timed(place.answers.in_phase(since, time.time() - 1))}", flush=True)
    windows = took * 1_000 / SIZE_MS
    return [(now[0] - was[0]) / windows for was, now in zip(before, after, strict=True)]


def timed(answers: list[FirstAnswer]) -> str:
    """Return how late answers were."""
    late = sorted(1e3 * answer.late_s for answer in answers)
    if not late:
        return "no answers"
    tentative = sum(answer.label != "stable" for answer in answers)
    return (
        f"{len(late)} windows, {tentative} tentative first; ms after the normal time: median"
        f" {late[len(late) // 2]:.0f}, p99 {late[max(-(-len(late) * 99 // 100) - 1, 0)]:.0f},"
        f" latest {late[-1]:.0f}"
    )


def cut(bench: Bench, seconds: int, per_window: list[float]) -> None:
    """Cut the first link; print what the places answer, and what healing takes."""
    link, names = bench.links[0], set(bench.loads[0].streams)
    before, since = bench.carried(0), time.time()
    memory = [place.mib for place in bench.places]
    link.cut()
    bench.read_for(seconds)
    at_end = [place.mib for place in bench.places]
    link.heal()
    healed = time.time()
    wanted = int(healed * 1_000) // SIZE_MS * SIZE_MS - SIZE_MS
    stable = bench.centre.answers.stable_at
    bench.read_until(lambda: stable.get(wanted), "all is exact", HEALED_S_MAX)
    took = time.time() - healed
    bench.read_for(5)
    until = time.time()
    print(f"\ncut, {seconds} s: all exact {took:.1f} s after the link is back")
    answers = bench.centre.answers.in_phase(since + 1, healed)
    named = sum(set(answer.missing) == names for answer in answers)
    print(f"centre: {timed(answers)}; {named} name the site's streams only")
    print(f"north: {timed(bench.north.answers.in_phase(since, healed))}")
    sent = bench.carried(0)[0] - before[0]
    windows = (until - since) * 1_000 / SIZE_MS
    print(f"sent {sent} B, {sent / (windows * per_window[0]):.2f} of what it is without a failure")
    now = [place.mib for place in bench.places]
    for name, *mib in zip(("centre", *SITES), memory, at_end, now, strict=True):
        print(f"{name}, MiB before, at the end, healed: {[round(m) for m in mib]}")
    sys.stdout.flush()


def flap(bench: Bench, seconds: int, per_window: list[float]) -> None:
    """Cut the first link again and again, while it is slow and loses segments."""
    before, since = bench.carried(0), time.time()
    bench.set_links(FLAPPING)
    while time.time() - since < seconds:
        bench.links[0].cut()
        bench.read_for(DOWN_S)
        bench.links[0].heal()
        bench.read_for(UP_S)
    ended = time.time()
    bench.set_links(THIN)
    wanted = int(ended * 1_000) // SIZE_MS * SIZE_MS - SIZE_MS
    stable = bench.centre.answers.stable_at
    bench.read_until(lambda: stable.get(wanted), "all is exact", HEALED_S_MAX)
    took, windows = time.time() - ended, (time.time() - since) * 1_000 / SIZE_MS
    sent = bench.carried(0)[0] - before[0]
    print(f"\nflapping, {seconds} s: all exact {took:.1f} s afterwards")
    print(f"centre: {timed(bench.centre.answers.in_phase(since, ended))}")
    print(f"north: {timed(bench.north.answers.in_phase(since, ended))}")
    print(f"sent {sent} B, {sent / (windows * per_window[0]):.2f} of what it is without a failure")
    sys.stdout.flush()


def check(bench: Bench) -> None:
    """Stop the load, and compare every window."""
    last = min(each.sent_to.value for each in bench.sending) // SIZE_MS * SIZE_MS
    last -= 2 * SIZE_MS
    for place in bench.places[:2]:
        stable = place.answers.stable_at
        bench.read_until(lambda of=stable: of.get(last), "the last windows", HEALED_S_MAX)
    for name, place, loads in (
        ("centre", bench.centre, bench.loads),
        ("north", bench.north, bench.loads[:1]),
    ):
        wrong = lost = 0
        began = max(each.began.value for each in bench.sending)
        starts = range(-(-began // SIZE_MS) * SIZE_MS, last + 1, SIZE_MS)
        for start in starts:
            rows = place.answers.rows.get(start, {})
            for load in loads:
                for key, right in load.figures(start, SIZE_MS).items():
                    found = rows.get(key)
                    lost += found is None
                    wrong += found is not None and any(
                        abs(found[figure] - value) > 1e-9 for figure, value in right.items()
                    )
        print(
            f"{name}: {len(starts)} windows compared: {lost} rows lost,"
            f" {place.answers.doubled} doubled, {wrong} wrong"
        )


if __name__ == "__main__":
    main()
