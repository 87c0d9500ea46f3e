"""Round trips through the project's codec and through fastavro, in every direction."""

from __future__ import annotations

import io
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.codec.build import DECODE, ENCODE, RECORDS, longs, plain

from slackwater.codec import (
    SCHEMAS,
    decode_delta,
    decode_ordered,
    decode_source,
    encode_delta,
    encode_ordered,
    encode_source,
    fingerprint,
    schema_json,
)
from slackwater.codec.avro_types import long_bytes, read_long
from slackwater.codec.key_lists import KeyLists
from slackwater.model.errors import MalformedRecordError, SlackwaterError
from slackwater.model.records import (
    NO_EPOCH,
    DeltaRecord,
    Kind,
    OrderedRecord,
    SourceColumns,
    SourceRecord,
)
from slackwater.primitives.figures import FIGURE_NAMES

SCHEMA_DIR = Path(__file__).parents[3] / "schemas"
BASE = 1_458_031_648_545_000

# Drawing whole records is slow on a busy machine, which shows nothing about the codec.
records_of = settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])


def fast_read(name: str, data: bytes) -> Any:
    """Return the record as decoded by fastavro."""
    return fastavro.schemaless_reader(io.BytesIO(data[10:]), json.loads(schema_json(name)), None)


def fast_write(name: str, value: Any) -> bytes:
    """Return bytes as encoded by fastavro, with the single-object header."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, json.loads(schema_json(name)), value)
    return b"\xc3\x01" + fingerprint(name) + out.getvalue()


def source(stimes: Any, **changes: Any) -> SourceRecord:
    times = np.array(stimes, np.int64)
    n = len(times)
    columns = SourceColumns(
        times, np.arange(n, dtype=np.int32) % 2, ("a", "b"), ("t",), (np.arange(n) / 4,)
    )
    header = {
        "kind": Kind.INSERTION,
        "stream": "room-1",
        "inc": 3,
        "first_id": 10,
        "last_id": 9 + n,
        "boundary": int(times.max()),
        "stime_min": int(times.min()),
        "stime_max": int(times.max()),
        "columns": columns,
    }
    return SourceRecord(**{**header, **changes})


@pytest.mark.parametrize("name", SCHEMAS)
def test_round_trip(name: str) -> None:
    @records_of
    @given(RECORDS[name])
    def check(record: Any) -> None:
        data = ENCODE[name](record)
        assert plain(DECODE[name](data)) == plain(record)
        assert ENCODE[name](DECODE[name](data)) == data

    check()


@pytest.mark.parametrize("name", SCHEMAS)
def test_fastavro_reads_ours_and_we_read_what_it_writes(name: str) -> None:
    @records_of
    @given(RECORDS[name])
    def check(record: Any) -> None:
        theirs = fast_read(name, ENCODE[name](record))
        assert plain(DECODE[name](fast_write(name, theirs))) == plain(record)

    check()


def test_source_as_another_reader_sees_it() -> None:
    theirs = fast_read("source", encode_source(source([BASE + 5, BASE, BASE + 7])))
    assert theirs["kind"] == "INSERTION"
    assert theirs["base_time"] == BASE
    assert theirs["times"] == [5.0, 0.0, 7.0]
    assert theirs["times64"] == []
    assert theirs["keys"] == ["a", "b"]
    assert theirs["key_index"] == [0.0, 1.0, 0.0]
    assert theirs["columns"] == [[0.0, 0.25, 0.5]]


def test_ordered_and_delta_as_another_reader_sees_them() -> None:
    ordered = OrderedRecord(
        Kind.TENTATIVE, 0, 1, 2, 100, 200, missing=("room-2",), keys=("a", "b"),
        offsets=np.array([0.0, 1, 3]), fields=("t",), values=(np.array([1.0, 2, 3]),),
    )  # fmt: skip
    theirs = fast_read("ordered", encode_ordered(ordered))
    assert theirs["offsets"] == [0.0, 1.0, 3.0]
    assert theirs["columns"] == [[1.0, 2.0, 3.0]]
    figure = np.arange(4.0).reshape(2, 2)
    delta = DeltaRecord(
        Kind.INSERTION, 0, 1, 2, 100, 200, 7, keys=("a", "b"), keys_hash=-5, fields=("t", "u"),
        count=figure, sum=figure + 1, m2=figure + 2, min=figure + 3, max=figure + 4,
    )  # fmt: skip
    theirs = fast_read("delta", encode_delta(delta))
    assert theirs["keys_hash"] == -5
    assert theirs["count"] == [[0.0, 1.0], [2.0, 3.0]]
    assert theirs["max"] == [[4.0, 5.0], [6.0, 7.0]]


@pytest.mark.parametrize(("span", "column"), [(2**24 - 1, "times"), (2**24, "times64")])
def test_times_are_exact_at_both_sides_of_the_float_limit(span: int, column: str) -> None:
    stimes = [BASE, BASE + span - 1, BASE + span, BASE + span // 2 + 1]
    data = encode_source(source(stimes))
    assert decode_source(data).columns.load().stimes.tolist() == stimes  # type: ignore[union-attr]
    theirs = fast_read("source", data)
    assert len(theirs[column]) == 4
    assert len(theirs["times"]) + len(theirs["times64"]) == 4


def test_the_widest_span_and_beyond() -> None:
    stimes = [-(2**52), 2**52 - 1]
    data = encode_source(source(stimes))
    assert decode_source(data).columns.load().stimes.tolist() == stimes  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="span"):
        encode_source(source([-(2**52), 2**52]))


def test_arrays_in_several_blocks_with_and_without_sizes() -> None:
    """As written by Java's blocking encoder: a negative count, then the block's size."""
    record = source([BASE, BASE + 1, BASE + 2])
    data = encode_source(record)
    values = np.array([0, 0.25, 0.5])
    complete = long_bytes(3) + values.tobytes() + b"\0"
    sizes = long_bytes(-2) + long_bytes(16) + values[:2].tobytes()
    blocks = sizes + long_bytes(1) + values[2:].tobytes() + b"\0"
    assert data.count(complete) == 1
    keys = long_bytes(2) + b"\x02a\x02b\0"
    split_keys = long_bytes(1) + b"\x02a" + long_bytes(-1) + long_bytes(2) + b"\x02b\0"
    assert data.count(keys) == 1
    other = data.replace(complete, blocks).replace(keys, split_keys)
    assert plain(decode_source(other)) == plain(record)


def test_columns_are_decoded_once_for_all_who_hold_the_record() -> None:
    columns = decode_source(encode_source(source([BASE, BASE + 1]))).columns
    assert columns is not None
    loaded = columns.load()
    assert columns.load() is loaded
    shared: list[npt.NDArray[Any]] = [loaded.stimes, loaded.key_index, *loaded.values]
    assert not any(column.flags.writeable for column in shared)


def test_the_header_needs_no_columns() -> None:
    record = decode_source(encode_source(source([BASE, BASE + 1]))[:-3], "sw.source.room-1/0@5")
    assert record.readings == 2
    with pytest.raises(MalformedRecordError, match=r"sw\.source\.room-1/0@5: source record: "):
        record.columns.load()  # type: ignore[union-attr]


@given(longs)
def test_numbers(value: int) -> None:
    assert read_long(long_bytes(value), 0) == (value, len(long_bytes(value)))


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_a_number_beyond_64_bits_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="int64"):
        long_bytes(number)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"last_id": 11}, "readings in columns"),
        ({"stime_min": BASE - 1}, "not those of the header"),
        ({"columns": None}, "without columns"),
    ],
)
def test_a_record_that_contradicts_itself_is_not_written(
    changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        encode_source(source([BASE, BASE + 1, BASE + 2], **changes))


def damaged_source(**changes: Any) -> bytes:
    theirs = fast_read("source", encode_source(source([BASE, BASE + 1, BASE + 2])))
    return fast_write("source", {**theirs, **changes})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"times": [0.0, 1.0]}, "2 times for 3 readings"),
        ({"times": [0.0, 0.5, 2.0]}, "time that is not an integer"),
        ({"times": [0.0, 1.0, float("nan")]}, "not those of the header"),
        ({"times": [0.0, 1.0, 3.0]}, "not those of the header"),
        ({"times": [0.0, 1.0, 1.0]}, "not those of the header"),
        ({"times64": [0.0, 1.0, 2.0]}, "both fields"),
        ({"base_time": BASE + 1}, "not those of the header"),
        ({"key_index": [0.0, 1.0]}, "2 key indices"),
        ({"key_index": [0.0, 1.0, 2.0]}, "key index outside"),
        ({"key_index": [0.0, 1.0, -1.0]}, "key index outside"),
        ({"key_index": [0.0, float("nan"), 0.0]}, "key index outside"),
        ({"key_index": [0.0, 0.5, 0.0]}, "key index that is not an integer"),
        ({"keys": []}, "key index outside"),
        ({"fields": []}, "1 columns for 0 fields"),
        ({"columns": [[1.0]]}, "1 values for 3 readings"),
        ({"last_id": 2**62}, "readings in"),
        ({"last_id": 0}, "readings in"),
        ({"last_id": 9}, "times for 0 readings"),
        ({"stime_min": BASE + 9}, "times from"),
        ({"stime_max": BASE + 2**53}, "times from"),
        ({"input_epoch": -2}, "leader epoch -2"),
        ({"input_epoch": 2**31}, "leader epoch"),
    ],
)
def test_damage_in_a_source_record(changes: dict[str, Any], reason: str) -> None:
    def read() -> None:
        columns = decode_source(damaged_source(**changes)).columns
        assert columns is not None
        columns.load()

    with pytest.raises(MalformedRecordError, match=reason):
        read()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"offsets": [0.0, 2.0, 1.0, 3.0]}, "decrease"),
        ({"offsets": [0.0, 1.0, 2.0, 4.0]}, "end at 4"),
        ({"offsets": [0.0, 1.0, 2.0, 2.0]}, "end at 2"),
        ({"offsets": [1.0, 1.0, 2.0, 3.0]}, "begin at 0"),
        ({"offsets": [0.0, 1.5, 2.0, 3.0]}, "not an integer"),
        ({"offsets": [0.0, float("nan"), 2.0, 3.0]}, "decrease"),
        ({"offsets": [0.0, float("inf"), 2.0, 3.0]}, "decrease"),
        ({"offsets": [0.0, 1.0, 2.0, float("nan")]}, "end at nan"),
        ({"offsets": [0.0, 3.0]}, "2 offsets for 3 keys"),
        ({"offsets": []}, "0 offsets"),
        ({"columns": []}, "0 columns for 1 fields"),
        ({"bucket_end": -1}, "a bucket from"),
        ({"piece": 1}, "piece 1 of 1"),
    ],
)
def test_damage_in_an_ordered_record(changes: dict[str, Any], reason: str) -> None:
    record = OrderedRecord(
        Kind.INSERTION, 0, 0, 0, 0, 10, keys=("a", "b", "c"), offsets=np.arange(4.0),
        fields=("t",), values=(np.arange(3.0),),
    )  # fmt: skip
    data = fast_write("ordered", {**fast_read("ordered", encode_ordered(record)), **changes})
    with pytest.raises(MalformedRecordError, match=reason):
        decode_ordered(data)


def a_delta(keys: tuple[str, ...], keys_hash: int) -> DeltaRecord:
    figure = np.ones((1, len(keys)))
    return DeltaRecord(
        Kind.INSERTION, 0, 0, 0, 0, 10, 5, keys=keys, keys_hash=keys_hash, fields=("t",),
        count=figure, sum=figure, m2=figure, min=figure, max=figure,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("figure", "columns"),
    [
        *itertools.product(FIGURE_NAMES, [[[1.0]], [[1.0, 2.0], [1.0, 2.0]]]),
        ("count", []),
        ("sum", []),
    ],
)
def test_damage_in_a_delta_record(figure: str, columns: list[list[float]]) -> None:
    data = encode_delta(a_delta(("a", "b"), 1))
    data = fast_write("delta", {**fast_read("delta", data), figure: columns})
    with pytest.raises(MalformedRecordError, match=f"{figure} for"):
        decode_delta(data)


@pytest.mark.parametrize("figure", ["m2", "min", "max"])
def test_a_figure_that_was_not_computed_is_neutral(figure: str) -> None:
    data = encode_delta(a_delta(("a", "b"), 1))
    data = fast_write("delta", {**fast_read("delta", data), figure: []})
    read = getattr(decode_delta(data), figure)
    np.testing.assert_array_equal(read, np.full((1, 2), 0.0 if figure == "m2" else np.nan))


def test_known_keys_are_the_callers_own_unless_they_differ() -> None:
    mine = ["a", "b"]
    data = encode_delta(a_delta(("a", "b"), 1))
    assert decode_delta(data, known={1: mine}).keys is mine
    assert decode_delta(data, known={1: ["a", "x"]}).keys == ("a", "b")
    assert decode_delta(data, known={2: mine}).keys == ("a", "b")


@pytest.mark.parametrize("name", SCHEMAS)
def test_bytes_of_another_schema_and_bytes_too_many(name: str) -> None:
    other = SCHEMAS[SCHEMAS.index(name) - 1]
    other = "source" if name.startswith("wide_") else other  # the codec of deltas reads both
    with pytest.raises(
        MalformedRecordError, match=f"not a record of schema .*{fingerprint(other)[:4].hex()}"
    ):
        DECODE[name](b"\xc3\x01" + fingerprint(other) + b"\0" * 99, "there")

    @records_of
    @given(RECORDS[name], st.binary(min_size=1, max_size=9))
    def check(record: Any, tail: bytes) -> None:
        with pytest.raises(SlackwaterError, match="too many"):
            plain(DECODE[name](ENCODE[name](record) + tail))

    check()


def test_a_key_list_is_recognised_by_its_bytes() -> None:
    keys = tuple(f"sensor-{i:04d}" for i in range(100))
    lists = KeyLists()
    out: list[bytes | memoryview] = []
    lists.write(out, keys)
    data = b"x" + b"".join(out) + b"y"
    first, end = lists.read(data, 1)
    again, _ = lists.read(data, 1)
    assert (first, data[end:]) == (keys, b"y")
    assert again is first


def test_a_list_that_was_changed_is_written_anew() -> None:
    lists = KeyLists()
    keys = ["a", "b"]
    written = []
    for _ in range(2):
        out: list[bytes | memoryview] = []
        lists.write(out, keys)
        written.append(b"".join(out))
        keys[1] = "c"
    assert written[0] != written[1]


@given(st.lists(st.lists(st.sampled_from(["k" * 70, "k" * 71, "é" * 40, ""]), max_size=4)))
def test_lists_that_look_alike_are_not_mixed_up_and_the_cache_is_bounded(
    all_keys: list[list[str]],
) -> None:
    lists = KeyLists(key_lists_max=3)
    for keys in all_keys:
        out: list[bytes | memoryview] = []
        lists.write(out, keys)
        assert lists.read(b"".join(out), 0)[0] == tuple(keys)
        assert len(lists) <= 6


def test_r5_the_lists_that_are_remembered_are_bounded_in_bytes_too() -> None:
    """Long keys that never repeat: a few kB each, and 256 lists of them in each direction."""
    lists = KeyLists(bytes_max=20_000)
    for n in range(50):
        keys = (f"{n:08d}" * 500, "b" * n)
        out: list[bytes | memoryview] = []
        lists.write(out, keys)
        assert lists.read(b"".join(out), 0)[0] == keys
        assert lists.nbytes <= 2 * 20_000
    assert len(lists) == 4
    out = []
    lists.write(out, ("x" * 100_000,))
    lists.read(b"".join(out), 0)
    assert len(lists) == 2, "one is kept, of any length"
    lists.clear()
    assert lists.nbytes == 0


def rows(stimes: Any, **changes: Any) -> OrderedRecord:
    times = np.array(stimes, np.int64)
    n = len(times)
    place = {"bucket_start": int(times[0]), "bucket_end": int(times[-1]) + 1}
    content = {
        "keys": ("a", "b"),
        "fields": ("t",),
        "values": (np.arange(n) / 4,),
        "stimes": times,
        "key_index": np.arange(n, dtype=np.int32) % 2,
    }
    return OrderedRecord(Kind.INSERTION, 0, 1, 2, **{**place, **content, **changes})


def test_rows_as_another_reader_sees_them() -> None:
    theirs = fast_read("ordered", encode_ordered(rows([BASE, BASE + 5, BASE + 5])))
    assert theirs["base_time"] == BASE
    assert theirs["times"] == [0.0, 5.0, 5.0]
    assert theirs["times64"] == []
    assert theirs["keys"] == ["a", "b"]
    assert theirs["key_index"] == [0.0, 1.0, 0.0]
    assert theirs["columns"] == [[0.0, 0.25, 0.5]]
    assert theirs["offsets"] == [0.0]


@pytest.mark.parametrize(("span", "column"), [(2**24 - 1, "times"), (2**24, "times64")])
def test_rows_are_exact_at_both_sides_of_the_float_limit(span: int, column: str) -> None:
    stimes = [BASE, BASE + span // 2 + 1, BASE + span - 1, BASE + span]
    data = encode_ordered(rows(stimes))
    assert decode_ordered(data).stimes.tolist() == stimes
    theirs = fast_read("ordered", data)
    assert len(theirs[column]) == 4
    assert len(theirs["times"]) + len(theirs["times64"]) == 4


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ({"times64": [0.0, 5.0]}, "both fields"),
        ({"key_index": [0.0]}, "1 key indices for 2 rows"),
        ({"key_index": [0.0, 2.0]}, r"outside 0\.\.1"),
        ({"key_index": [0.0, 0.5]}, "not an integer"),
        ({"key_index": [0.0, float("nan")]}, "outside"),
        ({"times": [0.0, 0.5]}, "not an integer"),
        ({"times": [1.0, 2.0]}, "begin at their base"),
        ({"times": [0.0, float("nan")]}, "begin at their base"),
        ({"times": []}, "2 key indices for 0 rows"),
        ({"columns": [[1.0]]}, "1 values for 2 rows"),
        ({"offsets": [0.0, 1.0, 2.0]}, "3 offsets where there are rows"),
    ],
)
def test_rows_that_do_not_fit_are_refused(damage: dict[str, Any], sentence: str) -> None:
    good = fast_read("ordered", encode_ordered(rows([BASE, BASE + 5])))
    with pytest.raises(MalformedRecordError, match=sentence):
        decode_ordered(fast_write("ordered", {**good, **damage}))


@pytest.mark.parametrize("damaged", [{"input_epoch": -2}, {"input_epoch": 2**31}])
def test_a_damaged_epoch_is_none(damaged: dict[str, int]) -> None:
    """The header is read alone, so the damage is found by who loads the columns."""
    assert decode_source(damaged_source(**damaged)).input_epoch == NO_EPOCH
    assert decode_source(damaged_source(input_epoch=7)[:-1] + b"\xff").input_epoch == NO_EPOCH
    assert decode_source(damaged_source(input_epoch=7)).input_epoch == 7


@pytest.mark.parametrize("version", [0, 1])
def test_a_source_record_of_an_earlier_version_has_no_epoch(version: int) -> None:
    """The first one lacks the number of logs, too."""
    recorded = json.loads((SCHEMA_DIR / "fingerprints.json").read_text())["source"]
    old = json.loads((SCHEMA_DIR / "recorded" / f"source-{recorded[version]}.avsc").read_text())
    for record in (source([BASE, BASE + 1]), replace(source([BASE]), input_epoch=300)):
        theirs = fast_read("source", encode_source(record))
        out = io.BytesIO()
        fastavro.schemaless_writer(out, old, {f["name"]: theirs[f["name"]] for f in old["fields"]})
        data = b"\xc3\x01" + bytes.fromhex(recorded[version]) + out.getvalue()
        assert decode_source(encode_source(record)).input_epoch == record.input_epoch
        assert plain(decode_source(data)) == plain(replace(record, input_epoch=NO_EPOCH))


def test_a_record_of_the_version_before_is_read_as_one_of_today() -> None:
    """A log written before the program was replaced: it lacks the columns of rows."""
    recorded = json.loads((SCHEMA_DIR / "fingerprints.json").read_text())["ordered"]
    old = json.loads((SCHEMA_DIR / "recorded" / f"ordered-{recorded[0]}.avsc").read_text())
    record = OrderedRecord(
        Kind.INSERTION, 0, 1, 2, 100, 200, keys=("a", "b"), offsets=np.array([0.0, 1, 3]),
        fields=("t",), values=(np.array([1.0, 2, 3]),),
    )  # fmt: skip
    theirs = fast_read("ordered", encode_ordered(record))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, old, {f["name"]: theirs[f["name"]] for f in old["fields"]})
    data = b"\xc3\x01" + bytes.fromhex(recorded[0]) + out.getvalue()
    assert plain(decode_ordered(data)) == plain(record)
    for cut in (data[:-1], data + b"\x00", data + b"\x02"):
        with pytest.raises(MalformedRecordError):
            decode_ordered(cut)
