"""A host decodes a source record once for all fragments."""

from __future__ import annotations

import pytest
from tests.paper.stage import Source

from slackwater.codec import encode_source
from slackwater.host.decoding import Decoded
from slackwater.runtime.logs.skipped import SKIPPED
from slackwater.runtime.logs.transport import Log

S1: Log = ("sw.source.s1", 0)


def records(count: int, stream: str = "s1") -> list[bytes]:
    source = Source(stream)
    for at in range(100, 100 * (count + 1), 100):
        source.emit([at - 50], at)
    return [encode_source(record) for record in source.log][:count]


def test_a_repeated_request_returns_the_same_record() -> None:
    """The same object: its columns are decoded once, and buckets made of it are shared."""
    decoded, (first, second) = Decoded(), records(2)
    one = decoded("source", S1, 0, first)
    assert one is not None
    assert decoded("source", S1, 1, second) is not one
    assert decoded("source", S1, 0, bytes(bytearray(first))) is one
    assert decoded("source", ("sw.source.s2", 0), 0, first) is not one


def test_what_was_written_anew_is_another_record() -> None:
    """A log may be truncated before a record and continued otherwise."""
    decoded, (first, second) = Decoded(), records(2)
    one = decoded("source", S1, 0, first)
    other = decoded("source", S1, 0, second)
    assert other is not None
    assert other is not one
    assert decoded("source", S1, 0, second) is other


def test_damage_is_none_each_time_and_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    monkeypatch.setattr(
        SKIPPED, "note", lambda topic, partition, offset, *_: counted.append(offset)
    )
    decoded = Decoded()
    assert [decoded("source", S1, 7, b"?") for _ in range(3)] == [None] * 3
    assert counted == [7]


@pytest.mark.parametrize("bound", ["bytes", "records"])
def test_what_is_remembered_is_bounded(bound: str) -> None:
    given = records(20)
    room = {"bytes_max": sum(map(len, given[-5:]))} if bound == "bytes" else {"records_max": 5}
    decoded = Decoded(**room)
    first = [decoded("source", S1, offset, value) for offset, value in enumerate(given)]
    assert len(decoded._known) == 5
    assert decoded._bytes == sum(map(len, given[-5:]))
    assert decoded("source", S1, 19, given[19]) is first[19]
    assert decoded("source", S1, 0, given[0]) is not first[0]


def test_a_record_that_is_larger_than_all_that_may_be_remembered_is_not() -> None:
    decoded, (value,) = Decoded(bytes_max=10), records(1)
    assert decoded("source", S1, 0, value) is not None
    assert not decoded._known
    assert decoded._bytes == 0
