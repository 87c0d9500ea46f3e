"""What a merger that starts finds in its log: the last records, without those of others."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.memory import MemoryBroker
from tests.unit.sessions.test_merged_input import LOG, record

from slackwater.codec.pane_records import encode_merged
from slackwater.host.procedures import perform
from slackwater.sessions.requests import Procedure, ReadMerged


def _read(records_max: int) -> Procedure[Any]:
    return (yield ReadMerged(LOG, records_max))


def test_the_last_records_are_read_and_foreign_ones_are_skipped() -> None:
    broker = MemoryBroker()
    broker.create_topic(LOG[0])
    writer = broker.writer(lambda why: None)
    values = [encode_merged(record(1_000 * n, 1_000 * (n + 1))) for n in range(5)]
    for value in [*values[:4], b"no record", values[4]]:
        writer.append(*LOG, value)

    def starts(records_max: int) -> list[int]:
        found = asyncio.run(perform(_read(records_max), broker, lambda: writer))
        return [of.start // 1_000_000 for of in found]

    assert starts(64) == [0, 1, 2, 3, 4]
    assert starts(3) == [3, 4]
    broker.delete_records({LOG: 6})
    assert starts(64) == []
