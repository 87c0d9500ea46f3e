"""Runs a rehearsal: start, replay, inject faults, wait, check, stop.

One thread per query reads results. The main thread writes them in the order read, feeds the
checkers as they arrive (which also determine the end), and injects the faults on time. The history
is checked while it is read and not kept, so a rehearsal of hours needs no more memory than its
batch result.
"""

from __future__ import annotations

import heapq
import queue
import random
import threading
from collections.abc import Callable, Iterable, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Protocol

import orjson

from slackwater.client.follow import Follower, Seen
from slackwater.delivery.merge import Cut
from slackwater.judge.check import Checker, Expectations
from slackwater.judge.latency import Commits, read_commits
from slackwater.machine.starting import StartLines, repeatedly
from slackwater.model.errors import CheckFailed, EnvironmentProblem
from slackwater.model.names import ProxyName
from slackwater.primitives.lateness import lateness_of
from slackwater.rehearsal.plan import AT_ONCE, RehearsalPlan, targets
from slackwater.rehearsal.report import (
    RehearsalOutcome,
    lateness_lines,
    make_outcome,
    start_line,
)
from slackwater.rehearsal.stage import Stage, StageEvent
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.registry import Registry

QUEUE_RECORDS_MAX = 100_000
STEP_S = 0.1
"""Maximum sleep of the loop; a due fault, exact to the millisecond, ends it earlier."""


class Watcher(Protocol):
    """Observer of a rehearsal (the demo's table, a progress bar)."""

    def began(self, plan: RehearsalPlan, anchor_wall: int) -> None:
        """The replay has begun."""

    def saw(self, record: dict[str, Any], seen_at: int) -> None:
        """A result was read."""

    def happened(self, text: str, at_us: int) -> None:
        """A fault begins or ends."""

    def tick(self, now_us: int) -> None:
        """Called periodically."""

    def phase(self, text: str) -> None:
        """A new phase begins, or a stage is ready."""

    def waits(self, text: str) -> None:
        """Called every few seconds while nothing else happens: what is waited for."""


class Quiet:
    """A watcher without effect."""

    def began(self, plan: RehearsalPlan, anchor_wall: int) -> None:
        """Ignored."""

    def saw(self, record: dict[str, Any], seen_at: int) -> None:
        """Ignored."""

    def happened(self, text: str, at_us: int) -> None:
        """Ignored."""

    def tick(self, now_us: int) -> None:
        """Ignored."""

    def phase(self, text: str) -> None:
        """Ignored."""

    def waits(self, text: str) -> None:
        """Ignored."""


@dataclass(order=True, slots=True)
class _Action:
    """An action at a wall time."""

    at_us: int
    number: int
    do: Callable[[], None] = field(compare=False)


class Rehearsal:
    """Runs one plan on one stage."""

    def __init__(
        self,
        plan: RehearsalPlan,
        stage: Stage,
        processes: Iterable[str],
        out: Path,
        wait_us: int,
        watcher: Watcher | None = None,
        clock: SystemClock | None = None,
    ) -> None:
        self._plan = plan
        self._stage = stage
        self._processes = tuple(processes)
        self._out = out
        self._wait_us = wait_us
        self._watcher: Watcher = watcher or Quiet()
        self._clock = clock or SystemClock()
        self._seen: queue.Queue[Seen | Cut | Exception] = queue.Queue(QUEUE_RECORDS_MAX)
        self._stopping = threading.Event()
        self._followers: dict[str, Follower] = {}
        self._checkers: dict[str, Checker] = {}
        self._events: list[StageEvent] = []
        self._actions: list[_Action] = []

    def run(self) -> RehearsalOutcome:
        """Run the rehearsal; the stage is stopped in any case."""
        try:
            out = self._out.open("wb")
        except OSError as error:
            raise EnvironmentProblem(f"--out {self._out}: {error.strerror}") from error
        with out:
            try:
                return self._play(out)
            finally:
                self._stopping.set()
                self._watcher.phase("stopping")
                self._stage.stop()

    def _play(self, out: IO[bytes]) -> RehearsalOutcome:
        plan = self._plan
        self._watcher.phase("starting Kafka, Spark and the processes")
        lines = StartLines(self._clock.now_us() / 1e6)
        with ThreadPoolExecutor(1) as pool:  # the start mostly waits for other processes
            computing = pool.submit(self._judges)
            with repeatedly(lambda: self._show(lines, batch=computing.done())):
                self._stage.prepare()
                judges = computing.result()
        # The start is over, also if a heartbeat is late at the last look.
        self._show_new(lines, dict.fromkeys([*self._stage.ready(), "batch"], True))
        threads = self._follow()
        anchor_wall = self._stage.begin()
        self._checkers = {
            name: judges[name](plan.expectations(query, anchor_wall))
            for name, query in plan.deployment.queries.items()
        }
        out.write(orjson.dumps(start_line(plan, anchor_wall)) + b"\n")
        out.flush()
        self._schedule(anchor_wall)
        self._watcher.phase("replaying")
        self._watcher.began(plan, anchor_wall)
        complete = self._watch(out, anchor_wall)
        self._watcher.phase("comparing")
        quarantine = self._stage.quarantine()
        if any(reasons.get("crash") for reasons in quarantine.values()):
            self._judge_without(self._stage.dead_letter_lines())
            plan = self._plan
        self._stopping.set()
        for thread in threads:
            thread.join(5.0)
        self._take_learned(out)
        events = sorted([*self._events, *self._stage.events()], key=lambda event: event.at_us)
        repeats = sum(follower.repeats for follower in self._followers.values())
        outcome = make_outcome(
            plan,
            anchor_wall,
            self._checkers,
            events,
            quarantine,
            repeats,
            self._commits,
            self._stage.loads(),
        )
        if not complete:
            outcome.report["ok"] = False
            outcome.findings.insert(0, self._unfinished())
        return outcome

    def _show(self, lines: StartLines, **others: bool) -> None:
        """Show stages of the start that are ready, or what is waited for."""
        self._show_new(lines, {**self._stage.ready(), **others})
        now_s = self._clock.now_us() / 1e6
        for line in lines.waiting(lines.awaited, now_s) if lines.awaited else ():
            self._watcher.waits(line.strip())

    def _show_new(self, lines: StartLines, ready: Mapping[str, bool]) -> None:
        for line in lines.new(ready, self._clock.now_us() / 1e6):
            self._watcher.phase(line)

    def _commits(self, query: str) -> Commits:
        return read_commits(
            self._stage.transport, query, self._plan.deployment.queries[query].parts
        )

    def _judges(self) -> dict[str, Callable[[Expectations], Checker]]:
        return self._plan.judges()

    # Reading the results.

    def _follow(self) -> list[threading.Thread]:
        threads = []
        for name, query in self._plan.deployment.queries.items():
            follower = Follower(self._stage.transport, name, query.parts, clock=self._clock)
            self._followers[name] = follower
            threads.append(
                threading.Thread(
                    target=self._read, args=(follower,), name=f"follow {name}", daemon=True
                )
            )
            threads[-1].start()
        return threads

    def _read(self, follower: Follower) -> None:
        try:
            while not self._stopping.is_set():
                for item in follower.poll():
                    self._seen.put(item)
        except Exception as error:  # noqa: BLE001 - handed to the main thread, which raises it
            self._seen.put(error)
        finally:
            follower.close()

    def _watch(self, out: IO[bytes], anchor_wall: int) -> bool:
        """Run until every window is stable, every fault is over and no process is away.

        False on time-out. A process that is not back is waited for even if these windows no longer
        need it, since its recovery is part of the rehearsal.
        """
        give_up = self._plan.done_us(anchor_wall) + self._wait_us
        while True:
            now = self._clock.now_us()
            while self._actions and self._actions[0].at_us <= now:
                heapq.heappop(self._actions).do()
            self._take(out, now)
            self._stage.check()
            self._watcher.tick(now)
            finished = not self._actions and all(map(_complete, self._checkers.values()))
            if finished and not self._stage.away():
                return True
            if now > give_up:
                return False

    def _take(self, out: IO[bytes], now: int) -> None:
        """Apply all results read; wait briefly for the first."""
        until = self._actions[0].at_us if self._actions else now + 1_000_000
        wait_s = max(0.001, min(STEP_S, (until - now) / 1e6))
        try:
            item = self._seen.get(timeout=wait_s)
            while True:
                self._apply(item, out)
                item = self._seen.get_nowait()
        except queue.Empty:
            out.flush()  # other programs may read the file during the run

    def _apply(self, item: Seen | Cut | Exception, out: IO[bytes]) -> None:
        if isinstance(item, Exception):
            raise item
        if isinstance(item, Cut):
            return  # the checker detects the hole in seq
        record = item.line()
        out.write(orjson.dumps(record) + b"\n")
        self._checkers[item.record["query"]].feed(record, item.offset)
        self._watcher.saw(item.record, item.seen_at)

    def _take_learned(self, out: IO[bytes]) -> None:
        """Read the learned gaps from the registry at the end of the run (rule-15).

        During the run the minimum is used: an answer that was given before all processes had read
        an increase is then not reported as early.
        """
        deployment = self._plan.deployment
        if not any(stream.learns_gaps for stream in deployment.streams.values()):
            return
        learned = Registry(self._stage.transport).expected()
        for name, checker in self._checkers.items():
            lateness = lateness_of(deployment, name, learned)
            checker.expectations = replace(checker.expectations, steps=lateness.steps)
            for line in lateness_lines(name, lateness):
                out.write(orjson.dumps(line) + b"\n")

    def _judge_without(self, lines: Mapping[str, Set[int]]) -> None:
        """Check again from the file, against a batch computation without these lines.

        Lines that crash their parser are known only after the pipeline has read them.
        """
        if not self._out.is_file():
            raise EnvironmentProblem(
                f"--out {self._out}: lines went to quarantine (reason crash), and the results must"
                " be read again to check them without these lines: choose a regular file"
            )
        self._plan = self._plan.without(lines)
        judges = self._judges()
        self._checkers = {
            name: judges[name](checker.expectations) for name, checker in self._checkers.items()
        }
        with self._out.open("rb") as seen:
            next(seen)  # skip the start line, which belongs to no query
            for line in seen:
                record = orjson.loads(line)
                self._checkers[record["query"]].feed(record)

    # Faults.

    def _schedule(self, anchor_wall: int) -> None:
        choice = random.Random(self._plan.seed)
        for fault in self._plan.faults:
            at, end = anchor_wall + fault.at_us, anchor_wall + fault.at_us + fault.for_us
            if fault.verb == "silence":
                name = ProxyName(fault.target).process
                self._at(at, self._noting(name, "silenced", f"silence {fault.target}"))
                self._at(end, self._noting(name, "heard", f"{fault.target} is connected again"))
                continue
            names = targets(fault.target, self._processes)
            choice.shuffle(names)  # simultaneous faults have no defined order
            for name in names:
                if fault.verb in AT_ONCE:
                    act = self._stage.kill if fault.verb == "kill" else self._stage.stop_part
                    self._at(at, self._acting(act, name, f"{fault.verb} {name}"))
                else:
                    self._at(at, self._acting(self._stage.pause, name, f"pause {name}"))
                    self._at(end, self._acting(self._stage.resume, name, f"resume {name}"))

    def _at(self, at_us: int, do: Callable[[], None]) -> None:
        heapq.heappush(self._actions, _Action(at_us, len(self._actions), do))

    def _noting(self, process: str, event: str, text: str) -> Callable[[], None]:
        def do() -> None:
            now = self._clock.now_us()
            self._events.append(StageEvent(now, process, event))
            self._watcher.happened(text, now)

        return do

    def _acting(self, act: Callable[[str], None], process: str, text: str) -> Callable[[], None]:
        def do() -> None:
            self._watcher.happened(text, self._clock.now_us())
            act(process)

        return do

    def _unfinished(self) -> str:
        """Describe the windows that lacked answers at the time-out, and processes still down."""
        open_ = [sentence for checker in self._checkers.values() for sentence in lacking(checker)]
        open_ += [f"{process} has not recovered" for process in self._stage.away()]
        return f"incomplete after {self._wait_us / 1e6:g} s more: {'; '.join(open_)}"


def _complete(checker: Checker) -> bool:
    """Return whether every window has its stable answer, and every due REC_DONE was read."""
    return not lacking(checker)


def lacking(checker: Checker) -> list[str]:
    """Return what the checker still expects, as phrases."""
    expectations = checker.expectations
    last = expectations.each.later(expectations.first, expectations.windows - 1)
    phrases = []
    for part in checker.parts:
        if part.stable <= last:
            phrases.append(f"no stable answer from {checker.at(part, part.stable)}")
        elif part.answered > part.stable or part.rec_done_due:
            phrases.append(f"no REC_DONE for {checker.at(part, part.stable)}")
    return phrases


def verify(outcome: RehearsalOutcome) -> None:
    """Raise ``CheckFailed`` with the first findings, unless everything agreed."""
    if outcome.ok:
        return
    shown = outcome.findings[:5]
    more = len(outcome.findings) - len(shown)
    rest = f"\n  and {more} more in the report" if more > 0 else ""
    raise CheckFailed("the rehearsal failed:\n  " + "\n  ".join(shown) + rest)
