"""A record of a source log may end within a message: a restart continues at the next element."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.scenarios.test_r10_boundaries_promise_only_what_was_read import THEIRS, Fed
from tests.support.proxy_world import SPEC, S, World

from slackwater.codec import decode_source
from slackwater.formats.positions import split_position
from slackwater.model.records import SourcePosition, SourceRecord
from slackwater.protocols.dpc.sunion.cursor import SourceCursor
from slackwater.proxy.rules import live_rules
from slackwater.proxy.topic import input as topic_input
from slackwater.proxy.topic.client import Fetched, Notice
from slackwater.runtime.logs.transport import read_to_end

LOG = ("sw.source.room.0", 0)
DISORDER_S = 5
Form = Literal["json-array", "json-columns"]
Element = int | None
"""The time of a reading in seconds; None is malformed."""


class ManyReadings(Fed):
    """A proxy that reads messages of many readings and writes records of at most three."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch, form: Form) -> None:
        world.spec = replace(
            SPEC,
            topic=replace(THEIRS, format=form),
            disorder_us=DISORDER_S * S,
            expect_every_us=60 * S,
        )
        self.form = form
        rules = live_rules
        monkeypatch.setattr(
            topic_input,
            "live_rules",
            lambda *given: replace(rules(*given), readings_max=3),
        )
        super().__init__(world, monkeypatch)

    def send(self, messages: Sequence[Sequence[Element]]) -> None:
        """Write messages to the topic; the value of a reading is its place."""
        writer, n = self.world.broker.writer(self.world.failures.append), 0
        for times in messages:
            rows = [{"node": "n", "ts": t, "t": n + i} for i, t in enumerate(times)]
            n += len(times)
            columns = {name: [row[name] for row in rows] for name in ("ts", "t")}
            value: Any = rows if self.form == "json-array" else {"node": "n", **columns}
            writer.append(THEIRS.name, 0, json.dumps(value).encode())

    def restart(self) -> None:
        """Start a new proxy, which takes over and reads the topic from its position on."""
        self.proxy = topic_input.TopicInput(self.world.context(), THEIRS)
        self.proxy.begin()
        start = self.proxy._partitions[0].position
        raw = read_to_end(self.world.broker, (THEIRS.name, 0))
        if new := [record for record in raw if record.offset >= start]:
            offsets = np.array([record.offset for record in new], np.int64)
            self.client.waiting = [Fetched(0, offsets, [record.value for record in new])]

    def run(self) -> None:
        self.world.run(self.proxy, 3)

    def lose_behind(self, records: int) -> None:
        """Drop all records after this many, as if they had not arrived."""
        del self.world.broker.log(LOG).entries[records:]

    def accepted(self) -> list[SourceRecord]:
        cursor = SourceCursor(SourcePosition(0, 0, 0, -(2**62)), strict=True)
        raw = [(r.offset, decode_source(r.value)) for r in read_to_end(self.world.broker, LOG)]
        return [record for offset, record in raw if cursor.offer(offset, record)]

    def logged(self) -> list[tuple[int, float]]:
        """Return (time in s, value) of all readings by id; ids have no gap."""
        found, next_id = [], 0
        for record in self.accepted():
            if record.columns is not None and record.readings:
                assert record.first_id == next_id
                next_id = record.last_id + 1
                columns = record.columns.load()
                times = (columns.stimes // S).tolist()
                found += list(zip(times, columns.values[0].tolist(), strict=True))
        return found

    def refused(self) -> dict[str, str]:
        """Return distinct entries of quarantine."""
        return {entry["position"]: entry["reason"] for entry in self.world.quarantined()}


def expected(
    messages: Sequence[Sequence[Element]],
) -> tuple[list[tuple[int, float]], dict[str, str]]:
    """Return the result of the definition of lateness for these messages."""
    logged: list[tuple[int, float]] = []
    refused = {}
    largest, n = -1_000, 0
    for offset, times in enumerate(messages):
        for i, t in enumerate(times):
            if t is None:
                refused[f"0:{offset}[{i}]@first"] = "malformed"
            elif t < largest - DISORDER_S:
                refused[f"0:{offset}[{i}]@first"] = "late"
            else:
                logged.append((t, float(n)))
                largest = max(largest, t)
            n += 1
    return logged, refused


MESSAGES = st.lists(
    st.lists(st.one_of(st.none(), st.integers(880, 920)), max_size=12), min_size=1, max_size=6
)
SPLIT: list[list[Element]] = [
    list(range(900, 910)),
    [910, None, 890, 911, 912],
    [],
    [913, 914, 915, 916, None],
]


@pytest.mark.parametrize("form", ["json-array", "json-columns"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=MESSAGES, data=st.data())
@example(messages=SPLIT, data=None)
def test_kills_between_records_neither_lose_nor_double_a_reading(
    tmp_path_factory: pytest.TempPathFactory,
    form: Form,
    messages: list[list[Element]],
    data: st.DataObject | None,
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        fed = ManyReadings(World(tmp_path_factory.mktemp("world")), monkeypatch, form)
        fed.send(messages)
        logged, refused = expected(messages)
        fed.restart()
        fed.run()
        assert fed.logged() == logged
        assert fed.refused() == refused
        ends = len(fed.world.broker.log(LOG).entries)
        kills = range(ends, 0, -1) if data is None else data.draw(st.lists(st.integers(1, ends)))
        for records in kills:
            fed.lose_behind(records)
            fed.restart()
            fed.run()
            assert fed.logged() == logged
            assert fed.refused() == refused
        assert not fed.world.failures


def test_records_end_within_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the tests of this module would not test anything."""
    fed = ManyReadings(World(tmp_path), monkeypatch, "json-array")
    fed.send(SPLIT)
    fed.restart()
    fed.run()
    places = [split_position(record.input_position) for record in fed.accepted()]
    assert places == [(0, 0), (0, 0), (0, 3), (0, 6), (0, 9), (1, 4), (3, 2), (4, 0)]


def test_a_boundary_that_is_sent_before_the_message_is_read_again_keeps_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that sends a boundary alone and ends, and its successor."""
    messages: list[list[Element]] = [list(range(900, 907))]
    fed = ManyReadings(World(tmp_path), monkeypatch, "json-array")
    fed.send(messages)
    fed.restart()
    fed.run()
    fed.lose_behind(3)
    fed.proxy = topic_input.TopicInput(fed.world.context(), THEIRS)
    fed.proxy.begin()
    log = fed.proxy._partitions[0].log
    log.core.advance_watermark(903 * S)
    log.append(log.core.flush(log.inc))
    assert split_position(fed.accepted()[-1].input_position) == (0, 3)
    fed.restart()
    fed.run()
    assert (fed.logged(), fed.refused()) == expected(messages)


def test_a_message_that_retention_took_while_it_was_half_read_is_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = ManyReadings(World(tmp_path), monkeypatch, "json-array")
    fed.send(SPLIT)
    fed.restart()
    fed.run()
    fed.lose_behind(4)
    fed.world.broker.delete_records({(THEIRS.name, 0): 1})
    fed.restart()
    fed.run()
    logged, _ = expected(SPLIT)
    assert fed.logged() == logged[:6] + logged[10:]
    assert [record.gap[0].lost for record in fed.accepted() if record.gap] == [1]


def test_what_follows_a_half_read_message_that_compaction_took_is_read_completely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client reports the end first, and then returns the next message."""
    fed = ManyReadings(World(tmp_path), monkeypatch, "json-array")
    fed.send(SPLIT)
    fed.restart()
    fed.run()
    fed.lose_behind(4)
    fed.restart()
    (brought,) = fed.client.waiting
    assert isinstance(brought, Fetched)
    fed.client.waiting = [
        Notice(0, "end", 1, ""),
        Fetched(0, brought.offsets[1:], brought.values[1:]),
    ]
    fed.run()
    logged, _ = expected(SPLIT)
    assert fed.logged() == logged[:6] + logged[10:]


def test_a_stream_may_change_its_format_between_two_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The position between two messages is the same for all formats."""
    fed = ManyReadings(World(tmp_path), monkeypatch, "json-array")
    fed.send(SPLIT)
    fed.restart()
    fed.run()
    fed.world.spec = replace(fed.world.spec, topic=THEIRS)
    fed.put([917])
    fed.restart()
    fed.run()
    assert fed.logged() == [*expected(SPLIT)[0], (917, 1.0)]
    fed.world.spec = replace(fed.world.spec, topic=replace(THEIRS, format="json-columns"))
    fed.form = "json-columns"
    fed.send([[918, 919]])
    fed.restart()
    fed.run()
    assert fed.logged()[-3:] == [(917, 1.0), (918, 0.0), (919, 1.0)]
    assert fed.refused() == expected(SPLIT)[1]
