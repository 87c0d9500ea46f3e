"""Result topics as an orderer's shell reads them (R20): lines of text, windows, positions.

A window's rows and its boundary come in as many reads as chance wants; the product's ``Assembler``
makes batches of them. Offsets have holes, so how far a consumer is, beyond the last record, is
asked for, and known some time later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tests.simulator.kafka import PositionGoneError

from slackwater.codec.result_batches import Assembler
from slackwater.protocols.dpc.line import LINES, LineName
from slackwater.protocols.dpc.orderer import OrdererCore

if TYPE_CHECKING:
    from tests.simulator.orderers import SimOrderer

ROWS_MAX = 30
"""Most rows that a consumer gives at a time."""


class ResultLogs:
    """Those of one incarnation of an orderer."""

    def __init__(self, orderer: SimOrderer) -> None:
        self._orderer = orderer
        streams = {i: of.results for i, of in enumerate(orderer.inputs) if of.results is not None}
        self.numbers = frozenset(streams)
        self._arriving = {i: Assembler(of) for i, of in streams.items()}
        self._replaying = {(line, i): Assembler(of) for line in LINES for i, of in streams.items()}
        self._is_asking = False

    def read_live(self, core: OrdererCore, i: int, position: int) -> tuple[int, int]:
        """What the live consumer has next of log ``i``: how many rows, and its new position.

        Raises ``PositionGoneError``: the real one ends then.
        """
        rows, position = self._orderer.inputs[i].log.read_visible(position, ROWS_MAX)
        for offset, value in rows:
            batch = self._arriving[i].take(offset, cast(bytes, value))
            if batch is not None:
                core.receive_results(i, batch)
        return len(rows), position

    def ask_positions(self, core: OrdererCore, positions: list[int]) -> None:
        """Learn how far the live consumer is, where the end of a log may be a marker (R11)."""
        if self._is_asking or not core.asks_positions:
            return
        self._is_asking = True

        def answer() -> None:
            self._is_asking = False
            for i in self.numbers:
                if self._arriving[i].is_between:
                    core.read_to(i, positions[i])
            self._orderer.turn_in(0)

        self._orderer.later(self._orderer.world.scheduler.between(500, 3_000), answer)

    def read_parked(self, core: OrdererCore, line: LineName, i: int, wanted: int) -> int:
        """Feed one line's parked cursor in log ``i``; says how many rows were read."""
        assembler, log = self._replaying[line, i], self._orderer.inputs[i].log
        try:
            rows, position = log.read_visible(assembler.resume(wanted), ROWS_MAX)
        except PositionGoneError:
            core.position_gone(line, i, log.beginning)
            return 0
        for offset, value in rows:
            batch = assembler.take(offset, cast(bytes, value))
            if batch is not None:
                core.catch_up_results(line, i, batch)
        if assembler.is_between:
            core.caught_up_to(line, i, position)
        return len(rows)
