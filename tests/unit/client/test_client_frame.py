"""A table of answers, in memory: in force, withdrawn, absent; against a model; bad input."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.memory import MemoryBroker
from tests.unit.client.test_client_follow import root
from tests.unit.histories import Root, batch, expectations
from tests.unit.judge.test_client_check import CELLS

from slackwater.client import frames, result_logs
from slackwater.client.answers import BestAnswers
from slackwater.client.follow import Client
from slackwater.codec.results import format_time, parse_time
from slackwater.model.errors import EnvironmentProblem, UsageError
from slackwater.model.names import RESULT_KINDS, Names
from slackwater.runtime.logs.skipped import SKIPPED
from slackwater.runtime.logs.transport import RawRecord

S = 1_000_000
Records = list[dict[str, Any]]


def broker(parts: int = 1) -> MemoryBroker:
    made = MemoryBroker()
    for kind in RESULT_KINDS:
        made.create_topic(Names().results("climate", kind), parts)
    return made


def write(to: MemoryBroker, records: Iterable[dict[str, Any]], part: int = 0) -> None:
    with to.transaction() as transaction:
        for record in records:
            kind = record.get("label", record["kind"])
            topic = Names().results("climate", kind if kind in RESULT_KINDS else "corrections")
            value = {name: v for name, v in record.items() if name != "seen_at"}
            transaction.append(topic, part, orjson.dumps(value | {"part": part}))


class MemoryClient(Client):
    """A client of a broker in memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, log: MemoryBroker, parts: int = 1) -> None:
        super().__init__("127.0.0.1:1")
        monkeypatch.setattr(frames, "KafkaTransport", lambda *_: log)
        monkeypatch.setattr(frames, "partition_count", lambda *_: parts)


@pytest.fixture
def log() -> MemoryBroker:
    return broker()


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, log: MemoryBroker) -> Client:
    return MemoryClient(monkeypatch, log)


def start_s(row: dict[str, Any]) -> int:
    """Start of a row's window, s."""
    return int(row["window_start"].timestamp())


def shown(table: Any, *names: str) -> list[tuple[Any, ...]]:
    return [(start_s(row), row["key"], *(row[n] for n in names)) for row in table.to_pylist()]


def test_a_window_answered_tentatively_undone_and_corrected(
    log: MemoryBroker, client: Client
) -> None:
    made, first, corrected = root()  # 1000 stable, 1001 and 1002 tentative without room-2
    write(log, first)
    assert shown(client.table("climate"), "x_count", "tentative", "missing") == [
        *((1000, key, 5, False, "") for key in "ab"),
        *((start, key, 2, True, "room-2") for start in (1001, 1002) for key in "ab"),
    ]
    assert [row[0] for row in shown(client.table("climate", kinds="exact"))] == [1000, 1000]
    write(log, corrected)
    exact = [(start, key, 5, False) for start in range(1000, 1004) for key in "ab"]
    assert shown(client.table("climate"), "x_count", "tentative") == exact
    assert shown(client.table("climate", kinds="exact"), "x_count", "tentative") == exact
    every = client.table("climate", kinds="all")
    found = shown(every, "x_count", "tentative", "withdrawn", "x_count_error", "x_sum_error")
    assert [row for row in found if row[1] == "a"] == [
        (1000, "a", 5, False, False, None, None),
        (1001, "a", 2, True, True, -3, 0.0),
        (1001, "a", 5, False, False, None, None),
        (1002, "a", 2, True, True, -3, 0.0),
        (1002, "a", 5, False, False, None, None),
        (1003, "a", 5, False, False, None, None),
    ]
    assert made.records[-1]["kind"] in ("boundary", "rec_done")


def test_an_undo_of_some_windows_leaves_the_other_ones_in_force(
    log: MemoryBroker, client: Client
) -> None:
    made = Root(expectations(), CELLS)
    made.tentative(3, ["room-2"])
    made.stable(1)
    write(log, made.records)
    table = client.table("climate", kinds="all")
    assert [row for row in shown(table, "tentative", "withdrawn") if row[1] == "a"] == [
        (1000, "a", True, True),
        (1000, "a", False, False),
        (1001, "a", True, False),
        (1002, "a", True, False),
    ]


def test_the_columns_and_their_types(log: MemoryBroker, client: Client) -> None:
    made, first, _ = root()
    write(log, first)
    table = client.table("climate")
    assert {field.name: str(field.type) for field in table.schema} == {
        "window_start": "timestamp[us, tz=UTC]",
        "window_end": "timestamp[us, tz=UTC]",
        "key": "string",
        "x_count": "int64",
        "x_sum": "double",
        "x_min": "double",
        "x_max": "double",
        "generation": "int64",
        "tentative": "bool",
        "missing": "string",
        "lost": "int64",
        "latency_ms": "double",
    }
    row, written = table.to_pylist()[0], made.records[0]
    assert row["window_start"] == datetime.fromtimestamp(1000, UTC)
    latency_us = parse_time(written["emitted_at"]) - parse_time(written["due_at"])
    assert row["latency_ms"] == latency_us / 1000 == 0.001
    assert table.schema.metadata[frames.NOTES] == orjson.dumps(
        {
            "query": "climate",
            "answered_to": "1970-01-01T00:16:43.000000Z",
            "incomplete": 0,
            "skipped": 0,
        }
    ).replace(b":", b": ").replace(b",", b", ").replace(b"00: 16: 43", b"00:16:43")


def test_a_frame_of_pandas_has_the_same_columns(log: MemoryBroker, client: Client) -> None:
    pandas = pytest.importorskip("pandas")
    write(log, root()[1])
    frame = client.frame("climate")
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == client.table("climate").column_names
    assert str(frame.window_start.dtype) == "datetime64[us, UTC]"
    assert (str(frame.x_count.dtype), str(frame.tentative.dtype)) == ("int64", "bool")
    assert frame.attrs["answered_to"] == "1970-01-01T00:16:43.000000Z"
    assert frame[~frame.tentative].groupby("key").x_count.sum().to_dict() == {"a": 5, "b": 5}


def test_a_frame_without_pandas_names_what_to_install(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(EnvironmentProblem, match=r"slackwater\[pandas\]"):
        client.frame("climate")


def test_the_last_windows_are_those_of_event_time(log: MemoryBroker, client: Client) -> None:
    """A deployment of 1970: the clock is of no account."""
    made = Root(expectations(), CELLS)
    made.stable(6)
    write(log, made.records)
    assert {row[0] for row in shown(client.table("climate", last="2s"))} == {1004, 1005}
    assert {row[0] for row in shown(client.table("climate", last="1500ms"))} == {1004, 1005}
    assert len({row[0] for row in shown(client.table("climate", last="1h"))}) == 6


@pytest.mark.parametrize("last", ["1 hour", "0s", "-1h", ""])
def test_a_duration_that_is_none_is_refused(client: Client, last: str) -> None:
    with pytest.raises(UsageError, match="last"):
        client.table("climate", last=last)
    with pytest.raises(UsageError, match="best, exact, all"):
        client.table("climate", kinds="every")  # type: ignore[arg-type]


def test_of_a_long_log_the_end_is_read(
    log: MemoryBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Root(expectations(), long_cells(3_000))
    made.stable(3_000)
    write(log, made.records)
    read: list[int] = []
    decoded = result_logs._ResultLogs._decoded

    def counted(self: result_logs._ResultLogs, records: Sequence[RawRecord]) -> Any:
        read.append(len(records))
        return decoded(self, records)

    monkeypatch.setattr(result_logs._ResultLogs, "_decoded", counted)
    assert len(shown(client.table("climate", last="200s"))) == 200
    assert 400 <= sum(read) <= 2 * 400 + 2 * result_logs.LOOK_BACK_RECORDS
    assert len(shown(client.table("climate"))) == 3_000


def long_cells(windows: int) -> Any:
    return batch({(start, "a"): {"room-1": 1} for start in range(1_000, 1_000 + windows)})


def test_the_windows_that_not_all_parts_have_answered_are_left_out_unless_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = broker(2)
    client = MemoryClient(monkeypatch, log, 2)
    made = [Root(expectations(), CELLS, part, owns) for part, owns in enumerate(("a", "b"))]
    made[0].stable(4)
    write(log, made[0].records, 0)
    assert shown(client.table("climate")) == []
    assert {row[1] for row in shown(client.table("climate", complete=False))} == {"a"}
    made[1].tentative(2, ["room-2"])
    write(log, made[1].records, 1)
    assert shown(client.table("climate"), "tentative") == [
        (start, key, key == "b") for start in (1000, 1001) for key in "ab"
    ]
    assert [row[0] for row in shown(client.table("climate", last="1s"))] == [1001, 1001]
    assert shown(client.table("climate", last="1s", complete=False)) == [(1003, "a")]


def test_rows_of_generations_have_the_columns_of_all(log: MemoryBroker, client: Client) -> None:
    made = Root(expectations(), CELLS)
    made.stable(1)
    earlier = list(made.records)
    made.stable(1)
    later = [record | {"generation": 1} for record in made.records[len(earlier) :]]
    for record in later:
        if record["kind"] == "stable":
            record["fields"] = {"y": {"avg": 2.5}, "x": {"count": record["fields"]["x"]["count"]}}
    write(log, earlier)
    write(log, later)
    table = client.table("climate")
    assert table.column_names[3:8] == ["y_avg", "x_count", "x_sum", "x_min", "x_max"]
    assert shown(table, "generation", "y_avg", "x_sum")[::2] == [
        (1000, "a", 0, None, 10.0),
        (1001, "a", 1, 2.5, None),
    ]


def test_a_query_without_a_window_has_a_row_for_each_reading(
    log: MemoryBroker, client: Client
) -> None:
    written: Records = []

    def answer(label: str, readings: Sequence[tuple[int, str, float]], missing: list[str]) -> None:
        of = {"query": "climate", "epoch": 0, "missing": missing, "due_at": format_time(2 * S)}
        of |= {"window_start": format_time(S), "window_end": format_time(2 * S)}
        of |= {"emitted_at": format_time(2 * S)}
        for stime, key, value in readings:
            row = {"seq": len(written), "kind": label, "stime": format_time(stime), "key": key}
            written.append(of | row | {"fields": {"key": value, "x_count": value}})
        end = {"seq": len(written), "kind": "boundary", "label": label, "windows": 1}
        written.append(of | end | {"keys": len(readings)})

    answer("tentative", [(S, "a", 1.0), (S + 1, "a", 2.0), (S + 1, "a", 3.0)], ["room-2"])
    answer("stable", [(S, "a", 1.5), (S, "b", 4.0), (S + 1, "a", 2.0), (S + 1, "a", 3.0)], [])
    write(log, written)
    table = client.table("climate")
    assert table.column_names[:5] == ["window_start", "window_end", "stime", "key", "key_"]
    assert str(table.schema.field("x_count").type) == "double"
    assert [(row["key"], row["key_"]) for row in table.to_pylist()] == [
        ("a", 1.5), ("b", 4.0), ("a", 2.0), ("a", 3.0)
    ]  # fmt: skip
    errors = client.table("climate", kinds="all").column("key__error").to_pylist()
    assert [error for error in errors if error is not None] == [-0.5], "others are not unique"


def test_a_window_of_which_retention_deleted_rows_is_left_out_and_counted(
    log: MemoryBroker, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    made = Root(expectations(), CELLS)
    made.stable(3)
    write(log, made.records)
    log.delete_records({(Names().results("climate", "stable"), 0): 4})  # in the second window
    table = client.table("climate")
    assert {row[0] for row in shown(table)} == {1002}
    assert orjson.loads(table.schema.metadata[frames.NOTES])["incomplete"] == 1
    assert "rows are deleted: 1" in caplog.text


def test_a_tentative_answer_whose_undo_is_deleted_is_not_in_force(
    log: MemoryBroker, client: Client
) -> None:
    _, first, corrected = root()
    write(log, first)
    write(log, corrected)
    log.delete_records({(Names().results("climate", "stable"), 0): 10})
    log.delete_records({(Names().results("climate", "corrections"), 0): 2})
    table = client.table("climate")
    assert not any(table.column("tentative").to_pylist())
    assert {row[0] for row in shown(table)} == {1003}
    withdrawn = client.table("climate", kinds="all").to_pylist()
    assert {row["x_sum_error"] for row in withdrawn} == {None}


def test_windows_that_were_skipped_are_counted_while_in_force(
    log: MemoryBroker, client: Client
) -> None:
    made = Root(expectations(), CELLS)
    made.skip(3, ["room-2"])
    write(log, made.records)
    notes = orjson.loads(client.table("climate").schema.metadata[frames.NOTES])
    assert (notes["skipped"], notes["answered_to"]) == (1, "1970-01-01T00:16:43.000000Z")
    before = len(made.records)
    made.stable(3)
    write(log, made.records[before:])
    table = client.table("climate")
    assert orjson.loads(table.schema.metadata[frames.NOTES])["skipped"] == 0
    assert len(shown(table)) == 6


def test_lost_readings_are_in_the_rows(log: MemoryBroker, client: Client) -> None:
    made = Root(expectations(), CELLS)
    made.stable(2)
    for record in made.records[:3]:
        record["lost"] = {"room-1": 2, "room-2": 1}
    write(log, made.records)
    assert client.table("climate").column("lost").to_pylist() == [3, 3, 0, 0]


def test_a_query_without_results_has_no_rows(client: Client) -> None:
    table = client.table("climate", last="1h", kinds="all")
    assert table.num_rows == 0
    assert {"window_start", "key", "tentative", "withdrawn"} <= {*table.column_names}
    assert orjson.loads(table.schema.metadata[frames.NOTES])["answered_to"] is None


def test_records_of_others_are_skipped_and_reported(log: MemoryBroker, client: Client) -> None:
    made = Root(expectations(), CELLS)
    made.stable(2)
    write(log, made.records[:3])
    with log.transaction() as transaction:
        for value in (
            b"null",
            b"",
            b"no result",
            b'{"kind":"stable"}',
            b"[" * 1000,
            b'{"a":"\xff"}',
        ):
            transaction.append(Names().results("climate", "stable"), 0, value)
    write(log, made.records[3:])
    before = sum(SKIPPED.counts().values())
    assert shown(client.table("climate"), "x_count") == [
        (start, key, 5) for start in (1000, 1001) for key in "ab"
    ]
    assert sum(SKIPPED.counts().values()) == before + 6


moves = st.lists(
    st.one_of(
        st.tuples(st.just("stable"), st.integers(1, 3)),
        st.tuples(st.just("tentative"), st.integers(1, 3)),
        st.tuples(st.just("skip"), st.integers(1, 3)),
    ),
    max_size=10,
)
WINDOWS = 40
MANY = batch(
    {
        (start, key): {"room-1": 1 + start % 2, "room-2": 1}
        for start in range(1_000, 1_000 + WINDOWS)
        for key in "abc"
        if (start * 7 + ord(key)) % 4
    }
)


@settings(max_examples=25, deadline=None)
@given(st.lists(moves, min_size=1, max_size=3))
def test_the_best_of_any_results_is_what_a_reader_of_each_record_has(
    parts: list[list[tuple[str, int]]],
) -> None:
    """The model applies one record after the other in the order of seq, with UNDO."""
    with pytest.MonkeyPatch.context() as patch:
        log = broker(len(parts))
        client = MemoryClient(patch, log, len(parts))
        model, ends, answered_to = BestAnswers(), list[int](), 0
        for part, turns in enumerate(parts):
            made = Root(expectations(), MANY, part)
            for move, count in turns:
                if made.answered_to + count * S > (1_000 + WINDOWS) * S:
                    break
                before = len(made.records)
                if move == "skip":
                    made.skip(count, ["room-2"])
                else:
                    getattr(made, move)(count, *([["room-2"]] if move == "tentative" else []))
                write(log, made.records[before:], part)
            for record in made.records:
                model.apply(record | {"part": part}, 0)
            ends.append(made.answered_to)
        answered_to = min(ends)
        wanted = {
            (answer.window_start, answer.part, key): (
                answer.label == "tentative", *row["x"].values()
            )
            for answer in model.windows()
            for key, row in answer.rows.items()
        }  # fmt: skip
        found = client.table("climate", complete=False, kinds="all").to_pylist()
        assert sum(not row["withdrawn"] for row in found) == len(wanted)
        assert model.incomplete == 0
        best = client.table("climate").to_pylist()
        assert sorted(values(row) for row in best) == sorted(
            (start // S, key, *of)
            for (start, _, key), of in wanted.items()
            if start < answered_to
        )  # fmt: skip
        exact = client.table("climate", kinds="exact").to_pylist()
        assert [values(row) for row in exact] == [
            values(row) for row in best if not row["tentative"]
        ]


def values(row: dict[str, Any]) -> tuple[Any, ...]:
    figures = (row[name] for name in ("x_count", "x_sum", "x_min", "x_max") if name in row)
    return (start_s(row), row["key"], row["tentative"], *figures)
