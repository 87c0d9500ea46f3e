"""Readings that are refused together are one record, with the entries of single ones."""

from __future__ import annotations

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.codec.quarantined import (
    CHARS_MAX,
    KEY_SHOWN_CHARS_MAX,
    PAYLOAD_CHARS_MAX,
    READINGS_MAX,
    RefusedColumns,
    encode_columns,
    entries_in,
)
from slackwater.proxy.quarantine import QuarantineEntry, to_json

NOW = 1_795_696_000_000_001
texts = st.text(st.characters(), max_size=12)
times = st.one_of(
    st.integers(-(2**62), 2**62),
    st.integers(1_400_000_000_000_000, 1_400_000_003_000_000),
    st.sampled_from([0, -1, -62_135_596_800_000_000, 253_402_300_799_999_999]),
)


@given(st.lists(st.tuples(times, texts, texts, texts), min_size=1, max_size=30), st.booleans())
def test_entries_are_those_of_single_records(
    rows: list[tuple[int, str, str, str]], detailed: bool
) -> None:
    stimes, keys, payloads, details = zip(*rows, strict=True)
    positions = [f"3:{n}" for n in range(len(rows))]
    refused = RefusedColumns(
        "late",
        positions,
        np.array(stimes, np.int64),
        keys,
        payloads,
        details if detailed else (),
    )
    found = [e for _, value in encode_columns("lab", refused, NOW, 7) for e in entries_in(value)]
    singles = [
        QuarantineEntry(at, "late", stime, detail if detailed else "", payload, key)
        for at, (stime, key, payload, detail) in zip(positions, rows, strict=True)
    ]
    assert found == [orjson.loads(to_json("lab", one, NOW, 7)) for one in singles]


def columns(count: int, payload: str = "x", key: str = "k") -> RefusedColumns:
    return RefusedColumns(
        "late",
        [str(n) for n in range(count)],
        np.zeros(count, np.int64),
        [key] * count,
        [payload] * count,
    )


def test_a_record_has_a_bound_of_readings_and_of_characters() -> None:
    sizes = [len(entries_in(v)) for _, v in encode_columns("lab", columns(2 * READINGS_MAX + 1), 0)]
    assert sizes == [READINGS_MAX, READINGS_MAX, 1]
    long = "\0" * PAYLOAD_CHARS_MAX
    records = list(encode_columns("lab", columns(200, long), 0))
    in_each = CHARS_MAX // (PAYLOAD_CHARS_MAX + 1)
    assert [len(entries_in(value)) for _, value in records] == [in_each] * 3 + [200 - 3 * in_each]
    assert [first for first, _ in records] == [str(n * in_each) for n in range(4)]
    assert max(len(value) for _, value in records) < 7 * CHARS_MAX


def test_long_texts_are_cut() -> None:
    ((_, value),) = encode_columns("lab", columns(2, "ä" * 5_000, "k" * 2_000), 0)
    (one, two) = entries_in(value)
    assert one["payload"] == two["payload"] == "ä" * PAYLOAD_CHARS_MAX
    assert one["key"] == "k" * KEY_SHOWN_CHARS_MAX


@pytest.mark.parametrize(
    "value",
    [b"", None, b"7", b"[]", b"{", b'{"columns": 3}', b'{"columns": {"position": "12"}}',
     b'{"columns": {"position": ["1"], "key": []}}'],
)  # fmt: skip
def test_other_bytes_are_no_record(value: bytes | None) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (any)
        entries_in(value)
