"""A merger forgets the keys of panes that are in its log, and of no others (rule-35)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from tests.paper.stage import MS, Settings

from slackwater.model.merged import MergedRecord
from slackwater.model.records import DeltaRecord, Kind, Position
from slackwater.primitives.key_table import KEPT_KEYS_MIN
from slackwater.sessions.effects import Append
from slackwater.sessions.events import Received, RecordDelivered
from slackwater.sessions.merger import MergerConfig, MergerSession
from slackwater.sessions.requests import Beginnings, ReadPart

SETTINGS = Settings(bucket_ms=100, window_ms=1_000, bound_ms=1_000)
LOG = ("sw.deltas.q.0", 0)
PANES = 30


class Merging:
    """The session of a merger of one part, which reads one delta after the other."""

    def __init__(self, kept_keys_min: int) -> None:
        config = MergerConfig("q", 0, 0, 1, 1, ("f",), SETTINGS.grid, 0)
        self.session = MergerSession(replace(config, kept_keys_min=kept_keys_min))
        procedure: Any = self.session.start()
        request = next(procedure)
        while True:
            try:
                request = procedure.send(self._answer(request))
            except StopIteration:
                break
        (self.log,) = self.session.inputs
        self.written: list[MergedRecord] = []
        self._offset = 0
        self._read(DeltaRecord(Kind.START, 0, 0, -1, 0, 0, 0, frontier=Position(0)))

    def _answer(self, request: Any) -> Any:
        if isinstance(request, Beginnings):
            return dict.fromkeys(self.session.inputs, 0)
        return (None, None) if isinstance(request, ReadPart) else []

    def _read(self, record: DeltaRecord) -> None:
        self.session.take(Received(self.log, self._offset, record))
        self._offset += 1

    def bucket(self, number: int) -> None:
        """Read a bucket with two keys, of which one never returns."""
        start, names = number * 100 * MS, (f"trip-{number}", f"tram-{number % 7}")
        ones = np.ones((1, 2))
        values = start + np.arange(2.0)[None]
        record = DeltaRecord(
            Kind.INSERTION, 0, 0, 0, start, start + 100 * MS, number + 1, keys=names,
            fields=("f",), count=ones, sum=values, m2=0 * ones, min=values, max=values,
        )  # fmt: skip
        self._read(record)

    def write(self) -> bool:
        """Write a pane that is complete; return whether there was one."""
        found = [each.record for each in self.session.step(0) if isinstance(each, Append)]
        for record in found:
            assert isinstance(record, MergedRecord)
            self.written.append(record)
            self.session.take(RecordDelivered(self.session.parts[0].log, 0))
        return bool(found)

    @property
    def kept(self) -> int:
        (part,) = self.session.parts
        return part.keys.kept_keys


def test_panes_are_the_same_and_keys_of_written_ones_are_forgotten() -> None:
    forgets, keeps = Merging(0), Merging(KEPT_KEYS_MIN)
    for each in (forgets, keeps):
        for number in range(10 * PANES):
            each.bucket(number)
            if number % 12 == 11:  # less often than a pane is complete: some wait
                each.write()
        while each.write():
            pass
    assert len(forgets.written) == PANES
    assert [each.start for each in forgets.written] == [
        pane * SETTINGS.window_ms * MS for pane in range(PANES)
    ]
    for one, other in zip(forgets.written, keeps.written, strict=True):
        assert one.pane.ref == other.pane.ref
        assert {*one.pane.columns.keys} == {*other.pane.columns.keys}
    assert keeps.kept == 10 * PANES + 7
    assert forgets.kept < keeps.kept / 2
