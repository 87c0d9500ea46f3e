"""Readings of a topic that the core refuses: their places, texts and keys, as columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from slackwater.codec.quarantined import RefusedColumns
from slackwater.formats.json_array import JsonArrayReader
from slackwater.formats.json_input import JsonReader
from slackwater.formats.messages import Messages
from slackwater.model.deployment import FieldSpec, KeySpec, StreamSpec, TimeSpec
from slackwater.protocols.dpc.source.core import SourceCore, SourceRules
from slackwater.proxy.topic.batch import Batch

SPEC = StreamSpec(
    "lab", KeySpec(field="mote"), TimeSpec(field="at", unit="s"), (FieldSpec("x", "x"),)
)
ON_TIME, LATE = '{"mote":"m1","at":9,"x":1}', '{"mote":"mä","at":5,"x":2, "note":"a,\\"b"}'
VALUES = [ON_TIME.encode(), LATE.encode(), b"\xff", ON_TIME.encode(), LATE.encode()]
S = 1_000_000


def refused_of(
    reader: JsonReader | JsonArrayReader, values: Sequence[bytes], now_us: int | None = None
) -> list[RefusedColumns]:
    ahead_us = None if now_us is None else 0
    core = SourceCore(SourceRules("lab", ("x",), 0, "promise", True, ahead_us))
    core.watermark = 8 * S
    offsets = np.array([3, 4, 6, 7, 9], np.int64)[: len(values)]
    batch = Batch(values, offsets, reader.parse(values), reader.texts, "@id")
    return [
        batch.refused("2:", refused, indices)
        for arrived, indices, _ in batch.runs()
        for refused in core.offer(arrived, now_us)
    ]


@pytest.mark.parametrize("values", [VALUES, Messages.of(VALUES)], ids=["bytes", "places"])
def test_each_has_the_place_the_text_and_the_key_of_its_message(values: Sequence[bytes]) -> None:
    (found,) = refused_of(JsonReader(SPEC), values)
    assert found.reason == "late"
    assert found.positions == ["2:4@id", "2:9@id"]
    assert found.stimes.tolist() == [5 * S, 5 * S]
    assert found.keys == ["mä", "mä"]
    assert found.payloads == [LATE, LATE]
    assert not found.details


def test_elements_of_a_message_have_their_index_and_their_own_text() -> None:
    (found,) = refused_of(JsonArrayReader(SPEC), [f"[{ON_TIME},{LATE}]".encode(), b"7"])
    assert found.positions == ["2:3[1]@id"]
    assert '"x": 2' in found.payloads[0]
    assert '"at": 9' not in found.payloads[0]


def test_a_reading_ahead_of_the_clock_says_by_how_much() -> None:
    (found,) = refused_of(JsonReader(SPEC), [ON_TIME.encode()], now_us=round(8.5 * S))
    assert found.reason == "ahead"
    assert found.details == ["0.500 s ahead of the proxy's clock"]
