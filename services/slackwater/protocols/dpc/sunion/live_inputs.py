"""An orderer's live view of its inputs: progress, buffered readings, and what is missing.

A stream is one log. A part of another query is two result topics, the stable and the tentative one;
the live line reads both as one input (``chain.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from slackwater.model.records import Gap, SourceColumns
from slackwater.protocols.dpc.sunion.chain import (
    ResultCursor,
    live_columns,
    live_gaps,
    live_missing,
    passed,
)
from slackwater.protocols.dpc.sunion.config import OrdererConfig
from slackwater.protocols.dpc.sunion.log_cursor import LiveCursor


class LiveInputs:
    """The live line's cursors, by input.

    Args:
        config: the orderer's configuration; it lists the logs of each input.
        cursors: the live line's cursors, one for each log.
        lookback_us: how far below the line's position readings are still needed.
    """

    def __init__(
        self, config: OrdererConfig, cursors: Sequence[LiveCursor], lookback_us: int
    ) -> None:
        self._config = config
        self._cursors = cursors
        self._lookback_us = lookback_us

    def passed_to(self, logs: tuple[int, ...], start: int) -> int:
        """The end of an input's complete event time on the live line, tentative or stable."""
        if len(logs) == 1:
            return self._cursors[logs[0]].passed(start)
        return passed(start, self._pair(logs))

    def passes_tentatively(
        self, live_to: Sequence[int], start: int
    ) -> Callable[[int], bool] | None:
        """A function of an input: whether it passes the bucket at ``start`` only tentatively.

        ``live_to`` has the progress of each input. None if no input is a query (trace-13).
        """
        if not self._config.results:
            return None
        end = self._config.grid.next_cut(start)

        def is_tentative(i: int) -> bool:
            logs = self._config.inputs[i]
            if len(logs) == 1:
                return False
            stable, _ = self._pair(logs)
            return live_to[i] >= end > stable.reach(start)

        return is_tentative

    def _pair(self, logs: tuple[int, ...]) -> tuple[ResultCursor, ResultCursor]:
        stable, tentative = (self._cursors[log] for log in logs)
        assert isinstance(stable, ResultCursor)
        assert isinstance(tentative, ResultCursor)
        return stable, tentative

    def missing(self, inputs: tuple[int, ...], start: int, end: int) -> tuple[str, ...]:
        """The names to report as missing in [start, end), sorted.

        They are those of ``inputs``, which have not passed, and those that the tentative answers
        in the other inputs lack (trace-20).
        """
        names = {self._config.names[self._config.inputs[i][0]] for i in inputs}
        for logs in self._config.inputs:
            if len(logs) > 1:
                names.update(live_missing(*self._pair(logs), start, end))
        return tuple(sorted(names))

    def gaps(self) -> Iterator[Iterable[tuple[int, int, Gap]]]:
        """Per log, the losses in what the live line uses; of a query's part see ``live_gaps``."""
        for logs in self._config.inputs:
            if len(logs) == 1:
                yield self._cursors[logs[0]].gaps
            else:
                yield live_gaps(*self._pair(logs))
                yield ()

    def columns(self, start: int, end: int) -> Iterator[Iterable[tuple[SourceColumns, int]]]:
        """Per input, the columns with readings of [start, end), with their previous watermarks."""
        for logs in self._config.inputs:
            if len(logs) == 1:
                yield self._cursors[logs[0]].columns(start, end)
            else:
                yield live_columns(*self._pair(logs), start, end)
