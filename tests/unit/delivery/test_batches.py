"""Batches end where answers are complete, and their positions are those after them."""

from __future__ import annotations

from typing import Any

from slackwater.codec.results import format_time
from slackwater.delivery.batches import BatchCutter, DeliveryBatch, PartPosition
from slackwater.model.deployment import WindowSpec
from slackwater.model.names import ResultKind
from slackwater.primitives.windows import Grid

S = 1_000_000
GRID = Grid(S, WindowSpec(S, S))


class Topics:
    """Numbers the records, and offers them with the offsets of their topics."""

    def __init__(self) -> None:
        self.cutter = BatchCutter(0, PartPosition(), GRID.later)
        self._seq = -1
        self._offsets: dict[ResultKind, int] = {}

    def offer(self, topic: ResultKind, kind: str, **of: Any) -> DeliveryBatch | None:
        self._seq += 1
        at = self._offsets[topic] = self._offsets.get(topic, -1) + 1
        return self.cutter.offer(topic, at, {"seq": self._seq, "kind": kind, **of})

    def row(self, topic: ResultKind) -> DeliveryBatch | None:
        return self.offer(topic, topic, key="a")

    def boundary(self, label: ResultKind, start: int, windows: int = 1) -> DeliveryBatch | None:
        window = {"window_start": format_time(start * S), "windows": windows}
        return self.offer(label, "boundary", label=label, **window)

    def undo(self, first: int, last: int) -> DeliveryBatch | None:
        of = {"undo_from": format_time(first * S), "undo_to": format_time(last * S)}
        return self.offer("corrections", "undo", **of)


def test_a_batch_ends_with_its_boundary() -> None:
    topics = Topics()
    assert topics.row("stable") is None
    batch = topics.boundary("stable", 0)
    assert batch is not None
    assert [record["seq"] for record in batch.records] == [0, 1]
    assert batch.after == PartPosition(2, {"stable": 2})


def test_an_undo_is_in_one_batch_with_all_that_replaces_what_it_revokes() -> None:
    topics = Topics()
    assert topics.boundary("tentative", 0)
    assert topics.boundary("tentative", 1)
    assert topics.undo(0, 1) is None
    assert topics.row("stable") is None
    assert topics.boundary("stable", 0) is None, "window 1 is revoked, and not replaced yet"
    batch = topics.boundary("stable", 1)
    assert batch is not None
    assert [record["seq"] for record in batch.records] == [2, 3, 4, 5]
    assert batch.after.offsets == {"tentative": 2, "corrections": 1, "stable": 3}


def test_a_run_replaces_all_of_its_windows() -> None:
    topics = Topics()
    assert topics.boundary("tentative", 0, windows=5)
    assert topics.undo(0, 4) is None
    assert topics.boundary("stable", 0, windows=5) is not None


def test_a_tentative_answer_replaces_nothing() -> None:
    topics = Topics()
    assert topics.boundary("tentative", 0)
    assert topics.undo(0, 0) is None
    assert topics.boundary("tentative", 7) is None


def test_what_retention_has_deleted_is_waited_for_no_longer() -> None:
    topics = Topics()
    assert topics.undo(0, 3) is None
    assert topics.row("stable") is None
    topics.cutter.skip(50)
    batch = topics.boundary("stable", 9)
    assert batch is not None
    assert [record["kind"] for record in batch.records] == ["undo", "boundary"]
