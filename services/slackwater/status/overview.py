"""What controllers report about themselves, the nodes, and where each fragment runs. Pure.

Each controller has its own view, and receives the nodes' heartbeats itself. The record shown is
that of the first controller of the greatest view. In a split network each half has a placement of
its own, so a fragment runs if any controller reports its copy as ready, and a node is up if any
controller receives its heartbeats.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from slackwater.control.clock_offset import ClockOffset, offset_us_max
from slackwater.control.control_state import ControlState, Wanted
from slackwater.control.placement import Standing
from slackwater.control.recorded import applied_queries, fragment_specs, not_applied, process_of
from slackwater.controller.links import StateFrame
from slackwater.model.deployment import QuerySpec
from slackwater.model.names import some_of

NAME_COLUMNS: Final = 28
"""Width of the column with names, as in the lines of processes."""

FragmentState = Literal["ready", "not ready", "down", "unplaced"]
"""``down``: it stays down, since another copy has a greater placement number."""
Answers = Mapping[str, StateFrame | str]
"""By the controller's address: its answer, or why there is none."""


@dataclass(frozen=True, slots=True)
class ControllerRow:
    """A controller that was asked; ``problem`` is why it did not answer, else empty."""

    address: str
    name: str = ""
    view_number: int = 0
    members: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class FragmentRow:
    """A fragment that is to run, and where it is placed. ``problem`` is empty if it runs."""

    name: str
    node: str
    state: FragmentState
    problem: str = ""


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node of the record; ``clocks`` has its offset by the address of the controller."""

    name: str
    standing: str
    suspected_by: tuple[str, ...]
    is_draining: bool
    room: int
    labels: tuple[tuple[str, str], ...]
    clocks: Mapping[str, ClockOffset]
    problems: tuple[str, ...]
    """What it reports."""

    @property
    def is_up(self) -> bool:
        """Whether a controller receives its heartbeats."""
        return self.standing != Standing.SUSPECTED.value

    def text(self) -> str:
        """All but the name."""
        parts = [self.standing]
        if self.is_up and self.suspected_by:
            parts.append(f"suspected by {', '.join(self.suspected_by)}")
        parts += ["drains"] if self.is_draining else []
        labels = "".join(f" {key}={value}" for key, value in self.labels)
        parts.append(f"room for {self.room}{labels}")
        if self.clocks:
            parts.append(f"clock {max(self.clocks.values(), key=lambda clock: clock.least_us)}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Overview:
    """Controllers, nodes and fragments. Without an answer of a controller the others are empty."""

    controllers: tuple[ControllerRow, ...]
    has_nodes: bool = True
    """False: the controller is that of `slackwater up`, which runs everything itself."""
    nodes: tuple[NodeRow, ...] = ()
    fragments: tuple[FragmentRow, ...] = ()
    paused: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """Queries that cannot be carried out, what nodes report that are not in the record, and moves
    that were refused."""
    clock_offset_us_max: int | None = None
    """The largest offset that does not endanger a bound; None without a query."""

    @property
    def answering(self) -> tuple[ControllerRow, ...]:
        """The controllers that answered, of the greatest view first."""
        rows = [row for row in self.controllers if not row.problem]
        return tuple(sorted(rows, key=_rank, reverse=True))

    @property
    def not_running(self) -> tuple[FragmentRow, ...]:
        """The fragments that no controller knows to be ready."""
        return tuple(row for row in self.fragments if row.state != "ready")

    @property
    def wrong(self) -> list[str]:
        """Return the reasons for exit code 1; empty if there are none."""
        reasons = []
        alike: defaultdict[str, list[str]] = defaultdict(list)
        for row in self.not_running:
            alike[row.problem].append(row.name)
        for problem, names in alike.items():
            reasons.append(f"{problem}: {some_of(names)}")
        for node in self.nodes:
            reasons += [f"node {node.name}: {problem}" for problem in node.problems]
        return list(dict.fromkeys([*reasons, *self.problems]))

    def lines(self) -> list[str]:
        """Return the lines of the table: controllers, nodes with their fragments, queries."""
        if not self.answering:
            reasons = "; ".join(f"{row.address}: {row.problem}" for row in self.controllers)
            return [f"{'controllers':<{NAME_COLUMNS}} none answers: {reasons}"]
        return [*self._of_controllers(), *self._of_nodes(), *self._of_queries()]

    def _of_controllers(self) -> Iterator[str]:
        if not self.has_nodes:
            (row,) = self.answering
            yield f"{'controller':<{NAME_COLUMNS}} that of `slackwater up` (view {row.view_number})"
            return
        views = dict.fromkeys((row.view_number, row.members) for row in self.answering)
        for number, members in views:
            yield f"{'controllers':<{NAME_COLUMNS}} {', '.join(members)} (view {number})"
        if len(views) > 1:
            yield f"{'':<{NAME_COLUMNS}} more than one view: they are separated, or it changes now"
        for row in self.controllers:
            if row.problem:
                name = f"controller {row.address}"
                yield f"{name:<{NAME_COLUMNS}} does not answer: {row.problem}"

    def _of_nodes(self) -> Iterator[str]:
        for node in self.nodes:
            name = f"node {node.name}"
            yield f"{name:<{NAME_COLUMNS}} {node.text()}"
            yield from (f"  {line}" for line in self.fragments_on(node.name))
            yield from (f"  problem: {problem}" for problem in node.problems)
        there = {node.name for node in self.nodes}
        for row in self.fragments:
            if row.node not in there:
                # Placed nowhere, or on a node that only the other half of a split network knows.
                yield f"{row.name:<{NAME_COLUMNS}} {row.problem or f'ready on {row.node}'}"

    def _of_queries(self) -> Iterator[str]:
        yield from (f"query {name} is paused" for name in self.paused)
        yield from self.problems

    def fragments_on(self, node: str) -> list[str]:
        """Return the names of the fragments placed on a node, with the state if it is not ready."""
        rows = sorted((row for row in self.fragments if row.node == node), key=lambda r: r.name)
        return [row.name if row.state == "ready" else f"{row.name} ({row.state})" for row in rows]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of ``--format json``; unknown values are null."""
        return {
            "controllers": [
                {
                    "address": row.address,
                    "answers": not row.problem,
                    "name": row.name or None,
                    "view": None if row.problem else row.view_number,
                    "members": list(row.members),
                    "problem": row.problem or None,
                }
                for row in self.controllers
            ],
            "nodes": [
                {
                    "node": node.name,
                    "standing": node.standing,
                    "suspected_by": list(node.suspected_by),
                    "draining": node.is_draining,
                    "room": node.room,
                    "labels": dict(node.labels),
                    "clock_offset_ms": {
                        address: {"offset": clock.offset_us / 1e3, "error": clock.error_us / 1e3}
                        for address, clock in node.clocks.items()
                    },
                    "problems": list(node.problems),
                }
                for node in self.nodes
            ],
            "fragments": [
                {"fragment": row.name, "node": row.node or None, "state": row.state}
                for row in self.fragments
            ],
            "paused": list(self.paused),
            "problems": list(self.problems),
        }


def overview_of(answers: Answers, *, has_nodes: bool = True) -> Overview:
    """Return what these controllers say; ``has_nodes`` is false for the one of `slackwater up`."""
    controllers = tuple(
        ControllerRow(address, problem=answer)
        if isinstance(answer, str)
        else ControllerRow(address, answer.controller, answer.view_number, answer.members)
        for address, answer in answers.items()
    )
    frames = {at: frame for at, frame in answers.items() if isinstance(frame, StateFrame)}
    overview = Overview(controllers, has_nodes)
    if not frames:
        return overview
    # The first one by rank gives the record, and is asked first for where a fragment is.
    frames = {row.address: frames[row.address] for row in overview.answering}
    state = next(iter(frames.values())).state
    paused = tuple(
        name for name in state.live_queries() if state.queries[name].wanted == Wanted.PAUSED.value
    )
    if not has_nodes:
        (frame,) = frames.values()
        problems = [problem for _, problem in frame.nodes.problems]
        return Overview(controllers, has_nodes, paused=paused, problems=tuple(problems))
    problems = [f"query {name}: {reason}" for name, reason in not_applied(state).items()]
    there = {*state.live_nodes()}
    problems += [  # a node that joins, or has left, is connected too
        f"node {node}: {problem}"
        for frame in frames.values()
        for node, problem in frame.nodes.problems
        if node not in there
    ]
    problems += [frame.nodes.refusal for frame in frames.values() if frame.nodes.refusal]
    return Overview(
        controllers,
        has_nodes,
        tuple(_node(name, state, frames) for name in state.live_nodes()),
        tuple(_fragments(state, frames.values())),
        paused,
        tuple(dict.fromkeys(problems)),
        offset_us_max(_specs(state)),
    )


def _rank(row: ControllerRow) -> tuple[int, int]:
    return row.view_number, len(row.members)


def _specs(state: ControlState) -> dict[str, QuerySpec]:
    return {name: each.deployment.queries[name] for name, each in applied_queries(state).items()}


def _node(name: str, state: ControlState, frames: Mapping[str, StateFrame]) -> NodeRow:
    entry = state.nodes[name]
    standings = {
        frame.controller: dict(frame.nodes.standings).get(name, Standing.SUSPECTED.value)
        for frame in frames.values()
    }
    up = [standing for standing in standings.values() if standing != Standing.SUSPECTED.value]
    clocks = {
        address: ClockOffset(offset_us, error_us)
        for address, frame in frames.items()
        for node, offset_us, error_us in frame.nodes.clocks
        if node == name
    }
    problems = dict.fromkeys(
        problem for frame in frames.values() for node, problem in frame.nodes.problems
        if node == name
    )  # fmt: skip
    return NodeRow(
        name,
        up[0] if up else Standing.SUSPECTED.value,
        tuple(at for at, standing in standings.items() if standing == Standing.SUSPECTED.value),
        entry.draining,
        entry.room,
        entry.labels,
        clocks,
        tuple(problems),
    )


def _fragments(state: ControlState, frames: Iterable[StateFrame]) -> Iterator[FragmentRow]:
    frames = list(frames)
    ready = [frozenset(frame.nodes.ready) for frame in frames]
    fenced = frozenset(number for frame in frames for number in frame.nodes.fenced)
    unplaced = {(q, f): reason for frame in frames for q, f, reason in frame.nodes.unplaced}
    deleted = {*state.queries_wanted(Wanted.DELETED)}
    for spec in fragment_specs(state):
        key, name = (spec.query, spec.fragment), process_of(spec.query, spec.fragment)
        copies = [frame.state.placement.get(key) for frame in frames]
        running = (
            copy.node
            for copy, numbers in zip(copies, ready, strict=True)
            if copy is not None and copy.number in numbers
        )
        placed, node = copies[0], next(running, None)
        reason = f" ({unplaced[key]})" if key in unplaced else ""
        if node is not None:
            if spec.query not in deleted:  # else it has ended
                yield FragmentRow(name, node, "ready")
        elif placed is None:
            yield FragmentRow(name, "", "unplaced", f"placed nowhere{reason}")
        elif placed.number in fenced:
            problem = f"down on {placed.node}, since another copy has a greater placement number"
            yield FragmentRow(name, placed.node, "down", problem)
        else:
            yield FragmentRow(name, placed.node, "not ready", f"not ready on {placed.node}{reason}")
