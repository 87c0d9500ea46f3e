"""Following the parts of a query in one order, in memory: to the end, on, and from the end."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.memory import MemoryBroker
from tests.unit.client.test_client_follow import root
from typer.testing import CliRunner

from slackwater.cli import show
from slackwater.cli.app import app
from slackwater.client import follow as follow_module
from slackwater.client import window_order
from slackwater.client.answers import BestAnswers
from slackwater.client.follow import KINDS, Client, Follow, Follower, From, Seen
from slackwater.client.window_order import WindowOrder
from slackwater.model.names import RESULT_KINDS, Names
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.service.registry import QueryDefinition

PARTS = 2
Records = list[dict[str, Any]]


def broker() -> MemoryBroker:
    made = MemoryBroker()
    for kind in RESULT_KINDS:
        made.create_topic(Names().results("climate", kind), PARTS)
    return made


def write(to: MemoryBroker, part: int, records: Records) -> None:
    with to.transaction() as transaction:
        for record in records:
            kind = record.get("label", record["kind"])
            topic = Names().results("climate", kind if kind in RESULT_KINDS else "corrections")
            transaction.append(topic, part, orjson.dumps({**record, "part": part}))


def follower(to: MemoryBroker, from_: From = "beginning", *, by_window: bool = True) -> Follower:
    order = WindowOrder[Any](range(PARTS)) if by_window else None
    return Follower(to, "climate", PARTS, from_, order=order)


def all_of(to: MemoryBroker, *, by_window: bool = True) -> list[tuple[int, int]]:
    """Part and seq of all that is there, in the order in which it is given."""
    follow = Follow(follower(to, by_window=by_window), KINDS, True, BestAnswers(), {})
    return [(record["part"], record["seq"]) for record in follow]


def polled(of: Follower, polls: int = 5) -> Records:
    return [item.record for _ in range(polls) for item in of.poll(0.001) if isinstance(item, Seen)]


def test_to_the_end_all_windows_of_all_parts_come_and_those_of_a_part_that_is_behind_last() -> None:
    log, (made, first, second) = broker(), root()
    write(log, 0, first)
    write(log, 0, second)
    write(log, 1, first)
    given = all_of(log)
    assert sorted(given) == sorted([(0, n) for n in range(len(made.records))]
                                   + [(1, n) for n in range(len(first))])  # fmt: skip
    assert [seq for part, seq in given if part == 0] == [*range(len(made.records))]
    assert given != sorted(given), "the parts alternate"
    assert given[-len(second) :] == [(0, seq) for seq in range(len(first), len(made.records))]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(st.lists(st.integers(0, PARTS - 1), max_size=12))
def test_the_order_does_not_depend_on_when_the_parts_were_written(
    monkeypatch: pytest.MonkeyPatch, turns: list[int]
) -> None:
    """Few records are held: parts are read in turns."""
    made, *_ = root()
    complete = broker()
    for part in range(PARTS):
        write(complete, part, made.records)
    expected = all_of(complete)
    monkeypatch.setattr(window_order, "HELD_ANSWERED_RECORDS_MAX", 4)
    monkeypatch.setattr(follow_module, "POLL_RECORDS_MAX", 3)
    log, left = broker(), {part: list(made.records) for part in range(PARTS)}
    reader, given = follower(log), list[tuple[int, int]]()
    for part in [*turns, *range(PARTS)]:
        count = 5 if len(turns) < 6 else len(left[part])
        write(log, part, left[part][:count])
        del left[part][:count]
        given += [(record["part"], record["seq"]) for record in polled(reader)]
    for part in range(PARTS):
        write(log, part, left[part])
    given += [(record["part"], record["seq"]) for record in polled(reader, 100)]
    assert given == expected[: len(given)]
    assert len(given) >= len(expected) - len(made.records)
    assert all_of(log) == expected


def test_while_a_part_does_not_answer_the_others_are_read_a_bounded_number_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(window_order, "HELD_ANSWERED_RECORDS_MAX", 4)
    monkeypatch.setattr(follow_module, "POLL_RECORDS_MAX", 3)
    log, (made, *_) = broker(), root()
    write(log, 0, made.records)
    reader = follower(log)
    assert polled(reader) == []
    assert reader._order is not None
    assert 4 <= reader._order.held < len(made.records)
    assert reader._order.held <= 4 + 3 + 3, "some rows may wait for their boundary"
    write(log, 1, made.records)
    given = polled(reader, 100)
    assert len({(record["part"], record["seq"]) for record in given}) == len(given)
    assert len(given) >= 2 * len(made.records) - 8


@pytest.mark.parametrize("parts", [(0, 1), (1, 0)])
def test_from_the_end_only_what_comes_in_one_order(parts: tuple[int, int]) -> None:
    log, (made, first, second) = broker(), root()
    for part in parts:
        write(log, part, first)
    reader = follower(log, "end")
    assert polled(reader) == []
    for part in parts:
        write(log, part, second)
    given = polled(reader)
    assert [record["seq"] for record in given if record["part"] == 0] == [
        *range(len(first), len(made.records))
    ]
    ends = [record["window_end"] for record in given if record["kind"] == "boundary"]
    assert ends == sorted(ends), "all that it reads is new to it"


def test_without_the_order_a_part_waits_for_no_other() -> None:
    log, (made, *_) = broker(), root()
    write(log, 0, made.records)
    assert len(polled(follower(log, by_window=False))) == len(made.records)


def test_the_command_passes_the_option_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def print_results(*_: Any, **options: Any) -> None:
        asked.append(options)

    monkeypatch.setattr(show, "print_results", print_results)
    monkeypatch.setattr("slackwater.cli.app.reach_kafka", lambda *_: Cluster("127.0.0.1:9"))
    for options in ([], ["--by-window"]):
        command = ["results", "climate", "--bootstrap", "127.0.0.1:9", "--prefix", "", *options]
        assert CliRunner().invoke(app, command).exit_code == 0
    assert asked == [{"by_window": False}, {"by_window": True}]


class _Asked(Exception):
    """What the client was asked for."""


def test_the_command_follows_with_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    def follow(_: Any, query: str, **options: Any) -> Any:
        raise _Asked(query, options["by_window"])

    known: dict[str, QueryDefinition] = {}
    monkeypatch.setattr(show, "registered", lambda *_: known)
    monkeypatch.setattr(show, "partition_counts", lambda *_: {"t": 1})
    monkeypatch.setattr(Client, "follow", follow)
    for by_window in (False, True):
        with pytest.raises(_Asked) as asked:
            show.print_results(
                *(Cluster("127.0.0.1:9"), Names(), "climate", False, set(), "jsonl", "beginning"),
                by_window=by_window,
            )
        assert asked.value.args == ("climate", by_window)
