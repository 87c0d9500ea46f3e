"""Plans a rehearsal completely before any process is started.

A rehearsal takes a minute and eight processes, so a misspelt fault must be detected first: the
files are read, the faults are parsed, and all errors are raised here. The plan determines all
times. The anchor is the smallest event time of all inputs (E0, trace-24). A reading is sent when
the event clock reaches its time, or that of an earlier line of its file if that is greater.
``--duration`` ends the replay at an event time. All boundaries stop at the end of the last window
that contains a reading sent.

Event time is int us since the epoch; wall time of the plan is us after the anchor. Pure except for
reading the files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, Literal, get_args

from slackwater.formats.readingsfile import open_readings
from slackwater.judge.batch import BatchResult, RowsResult, compute_all, end_boundary
from slackwater.judge.check import Checker, Expectations
from slackwater.judge.check_having import windows_checker
from slackwater.judge.check_rows import RowChecker
from slackwater.judge.readers.files import read_stream
from slackwater.judge.readings import StreamInput
from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.durations import format_duration_us, parse_duration_us
from slackwater.model.errors import DeploymentError, UsageError
from slackwater.model.kinds import HOST, KINDS, PROCESSES, is_hosted
from slackwater.model.names import is_within, kind_of, own_name

Verb = Literal["silence", "kill", "stop", "pause"]
AT_ONCE: Final = {"kill": "a killed process", "stop": "a stopped process"}
"""Faults without a length: what they strike is restarted at once."""
TARGETS: Final = frozenset((*KINDS, *PROCESSES))
"""What a fault can stop: fragments of each kind, and processes."""

_FAULT = re.compile(
    r"at=(?P<at>\S+)\s+(?P<verb>[a-z]+)\s+(?P<target>\S+)(?:\s+for\s+(?P<length>\S+))?"
)
_GRAMMAR: Final = (
    "write at=5s silence STREAM for 8s, at=5s kill KIND[/NAME], at=5s stop KIND[/NAME] or"
    " at=5s pause KIND[/NAME] for 2s"
)


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """A parsed ``--fault``; times in us of wall time after the anchor."""

    text: str
    at_us: int
    verb: Verb
    target: str
    for_us: int = 0


READINGS_MIN: Final = 2
"""Below this number of readings of a file, a rehearsal says so."""


@dataclass(frozen=True, slots=True)
class RehearsalPlan:
    """A rehearsal ready to run.

    ``inputs`` are the readings to send, ``end`` is the event time at which all boundaries stop,
    ``limit`` the event time at which the replay ends (None: at the files' ends).
    """

    deployment: Deployment
    paths: Mapping[str, Path]
    inputs: Mapping[str, StreamInput]
    speed: float
    start: int
    limit: int | None
    end: int
    replay_us: int
    faults: tuple[PlannedFault, ...]
    seed: int
    in_files: Mapping[str, int] = field(default_factory=dict)
    """Readings of each file, those behind the end of the replay among them."""

    def barely_read(self) -> list[str]:
        """Say which files have hardly a reading in the replay: no failure of theirs would show."""
        return [
            f"{name}: {len(sent.readings)} of {self.in_files[name]:,} readings is in the replay,"
            f" so a failure of it shows nothing: {self.speed:g} x is slow for this file, try a"
            " larger --speed, or --duration"
            for name, sent in self.inputs.items()
            if len(sent.readings) < min(READINGS_MIN, self.in_files.get(name, 0))
        ]

    def expectations(self, query: QuerySpec, anchor_wall: int) -> Expectations:
        """Return the parameters that a query is checked against."""
        units = query.units(query.bucket_us(self.speed))
        return Expectations(
            query=query.name,
            window=units,
            parts=query.parts,
            aggregate=query.aggregate,
            bound=self.deployment.bound_us(query),
            bound_of=self.deployment.bound_of(query).name,
            lateness=self.deployment.lateness_us(query),
            speed=self.speed,
            anchor_wall=anchor_wall,
            anchor_event=self.start,
            end=self.end,
            last_reading=self._last_reading(query),
            early=self._early_us(query),
            chained=bool(self.deployment.queries_of(query)),
        )

    def _last_reading(self, query: QuerySpec) -> int:
        """Return the largest event time of the query's inputs; E0 without readings."""
        inputs = (self.inputs.get(name) for name in self.deployment.source_streams(query))
        latest = (sent.largest for sent in inputs if sent and sent.largest is not None)
        return max(latest, default=self.start)

    def _early_us(self, query: QuerySpec) -> int:
        """Return how long before its end a window may be stable.

        No row lies between a window's end and the next one's, so an answer up to the former is a
        reader's boundary up to the latter. Windows of a calendar differ in length.
        """
        streams = self.deployment.source_streams(query)
        early = max(self.deployment.streams[name].disorder_us for name in streams)
        readers = [query]
        while readers:
            names = self.deployment.queries_of(readers.pop())
            read = [self.deployment.queries[name] for name in names]
            readers += read
            for spec in read:
                units = spec.units(spec.bucket_us(self.speed))
                early += units.slide_us * (2 if units.is_calendar else 1)
        return early

    def done_us(self, anchor_wall: int) -> int:
        """Return the wall time by which the last window of every query is due."""
        return max(
            int(self.expectations(query, anchor_wall).due(self.end))
            for query in self.deployment.queries.values()
        )

    def without(self, lines: Mapping[str, Set[int]]) -> RehearsalPlan:
        """Return the plan without the given lines, per stream, of its files."""
        inputs = dict(self.inputs)
        for name, some in lines.items():
            sent = read_stream(self.deployment.streams[name], self.paths[name], some)
            inputs[name] = sent if self.limit is None else sent.until(self.limit)
        return replace(self, inputs=inputs)

    def expected(self) -> tuple[dict[str, BatchResult], dict[str, RowsResult]]:
        """Return the batch results of all queries over the readings sent: of windows, and rows."""
        return compute_all(self.deployment.in_order(), self.inputs, self.start, self.speed)

    def judges(self) -> dict[str, Callable[[Expectations], Checker]]:
        """Return for each query the factory of its checker."""
        windows, rows = self.expected()
        return {
            query.name: self._row_judge(query, rows[query.name])
            if query.window is None
            else partial(windows_checker, query, windows[query.name])
            for query in self.deployment.queries.values()
        }

    def _row_judge(self, query: QuerySpec, rows: RowsResult) -> Callable[[Expectations], Checker]:
        # Values computed by another query are rounded in another order as well.
        computed = query.select is not None or bool(self.deployment.queries_of(query))
        return partial(RowChecker, expected=rows, computed=computed)


def make_plan(
    deployment: Deployment,
    paths: Mapping[str, Path],
    *,
    speed: float,
    duration_us: int | None,
    faults: Sequence[str],
    seed: int,
    processes: Iterable[str],
) -> RehearsalPlan:
    """Read the inputs and validate everything; ``UsageError`` or ``DeploymentError``.

    ``processes`` are the process names printed by ``status``, as targets of kill and pause.
    """
    if not 0 < speed < float("inf"):
        raise UsageError(f"--speed {speed:g}: must be a number above 0")
    _check_inputs(deployment, paths)
    for name, path in paths.items():
        open_readings(deployment.streams[name], path)  # raises if the pipeline would refuse it
    read = {name: read_stream(deployment.streams[name], path) for name, path in paths.items()}
    times = [reading.stime for stream in read.values() for reading in stream.readings]
    if not times:
        raise DeploymentError(_no_reading(paths, read))
    start, last = min(times), max(times)
    limit = None if duration_us is None else start + int(duration_us * speed)
    sent = read if limit is None else {n: stream.until(limit) for n, stream in read.items()}
    end = end_boundary(deployment.in_order(), sent, speed)
    if end is None:
        raise DeploymentError("no query has a reading within the replay")
    replay_us = int((last - start) / speed)
    if duration_us is not None:
        replay_us = min(replay_us, duration_us)
    known = tuple(processes)
    found = (_on_shared_children(parse_fault(f), deployment) for f in faults)
    parsed = tuple(sorted(found, key=lambda f: f.at_us))
    for fault in parsed:
        check_fault(fault, paths, known, replay_us)
    return RehearsalPlan(
        deployment, dict(paths), sent, speed, start, limit, end, replay_us, parsed, seed,
        in_files={name: len(stream.readings) for name, stream in read.items()},
    )  # fmt: skip


def _no_reading(paths: Mapping[str, Path], read: Mapping[str, StreamInput]) -> str:
    """Return the error of inputs without a reading; it names each one's first malformed line."""
    found = []
    for name, path in paths.items():
        sent = read[name]
        lines = f"{sent.malformed} malformed lines" if sent.malformed != 1 else "1 malformed line"
        first = "".join(f", {path}:{line}: {why}" for line, why in sent.examples[:1])
        found.append(f"{path} has {lines}{first}")
    return f"no input has a reading: {'; '.join(found)}"


def parse_fault(text: str) -> PlannedFault:
    """Parse a ``--fault``; ``UsageError`` names the part that is invalid."""
    match = _FAULT.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"--fault {text!r}: invalid syntax; {_GRAMMAR}")
    try:
        at_us = parse_duration_us(match["at"])
        for_us = parse_duration_us(match["length"]) if match["length"] else 0
    except ValueError as error:
        raise UsageError(f"--fault {text!r}: {error}") from error
    verb = match["verb"]
    if verb not in get_args(Verb):
        raise UsageError(f"--fault {text!r}: unknown fault {verb}; {_GRAMMAR}")
    if (verb in AT_ONCE) == bool(match["length"]):
        need = (
            f"takes no 'for': {AT_ONCE[verb]} is restarted at once"
            if verb in AT_ONCE
            else "needs a duration: add 'for 8s'"
        )
        raise UsageError(f"--fault {text!r}: {verb} {need}")
    if verb not in AT_ONCE and for_us == 0:
        raise UsageError(f"--fault {text!r}: the duration {match['length']} is 0")
    return PlannedFault(text.strip(), at_us, verb, match["target"], for_us)  # type: ignore[arg-type]


def _on_shared_children(fault: PlannedFault, deployment: Deployment) -> PlannedFault:
    """Return the fault with the fragments that run, if its query shares another's children."""
    kind, name = kind_of(fault.target), own_name(fault.target)
    query = deployment.queries.get(name.partition(".")[0])
    if kind not in KINDS or not KINDS[kind].is_shared or query is None or query.has_children:
        return fault
    return replace(fault, target=f"{kind}/{query.child_query}{name.removeprefix(query.name)}")


def check_fault(
    fault: PlannedFault, streams: Iterable[str], processes: Sequence[str], replay_us: int
) -> None:
    """Check that the fault's target exists and that its time lies within the replay."""
    if fault.at_us > replay_us:
        raise UsageError(
            f"--fault {fault.text!r}: the replay ends after {format_duration_us(replay_us)}"
        )
    if fault.verb == "silence":
        if fault.target not in streams:
            raise UsageError(
                f"--fault {fault.text!r}: there is no stream {fault.target};"
                f" silence one of {', '.join(streams)}"
            )
    elif not targets(fault.target, processes):
        raise UsageError(
            f"--fault {fault.text!r}: there is no process {fault.target};"
            f" choose among {', '.join(processes)}"
        )
    elif fault.verb == "stop" and not all(map(_stops, targets(fault.target, processes))):
        raise UsageError(
            f"--fault {fault.text!r}: only hosts, orderers and roots are stopped in an orderly way;"
            f" write kill {fault.target}"
        )


def _stops(name: str) -> bool:
    """Whether it can end in an orderly way, and hand over what it does (rule-27)."""
    return kind_of(name) == HOST or is_hosted(name)


def targets(name: str, processes: Iterable[str]) -> list[str]:
    """Return the processes that a name selects: that process, or all within the name.

    ``orderer`` (or ``orderer/*``) selects all orderers, ``orderer/climate.0`` both replicas of that
    child, ``proxy`` the process that serves all streams, ``proxy/room-1`` one of them. Each part of
    a name must be written in full, so that a typing error does not kill other processes.
    """
    name = name.removesuffix("/*").removesuffix("/")
    if kind_of(name) not in TARGETS:
        return []
    known = list(processes)
    return [name] if name in known else [p for p in known if is_within(p, name)]


def _check_inputs(deployment: Deployment, paths: Mapping[str, Path]) -> None:
    known = ", ".join(deployment.streams)
    for name in paths:
        if name not in deployment.streams:
            raise UsageError(f"--input {name}: the deployment has no stream {name}, only {known}")
    if not deployment.queries:
        raise DeploymentError("the deployment has no query: there is nothing to rehearse")
    for query in deployment.queries.values():
        for source in deployment.source_streams(query):
            if source not in paths:
                raise UsageError(
                    f"query {query.name} needs stream {source}: add --input {source}=FILE"
                )
    for name in paths:
        spec = deployment.streams[name]
        if spec.time.from_ is not None:
            raise DeploymentError(
                f"stream {name} has times of {spec.time.from_}, which a file has not: declare the"
                " column or field of a time; or run `slackwater up`, then `slackwater send"
                f" {name} --silence 10s..20s`"
            )
        kind = "topic" if spec.topic is not None else "mqtt"
        if spec.topic is not None or spec.mqtt is not None:
            raise DeploymentError(
                f"stream {name} is fed by {kind}, but a rehearsal replays files: in a copy of the"
                f" file leave out its `{kind}`, and give a file with a message in each line"
                f" ({name}.ndjson)"
            )
