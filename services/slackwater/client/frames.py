"""Results as one table: ``Client.table`` for Arrow, ``Client.frame`` for pandas.

The columns and their meaning are in ``docs/howto/read-results.md``. pandas is not installed with
slackwater, and is imported when a frame is asked for.
"""

from __future__ import annotations

import importlib.util
import json
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from slackwater.codec.results import format_time
from slackwater.model.durations import parse_duration_us
from slackwater.model.errors import EnvironmentProblem, UsageError
from slackwater.model.names import Names
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import partition_count

if TYPE_CHECKING:
    from slackwater.client.answer_table import AnsweredTo, AnswerTable

_log = logging.getLogger(__name__)

Kinds = Literal["best", "exact", "all"]
KINDS: Final = ("best", "exact", "all")
NOTES: Final = b"slackwater"
"""Key of the metadata of a table: a JSON object, as in ``attrs`` of a frame."""


class Frames:
    """The part of a client that reads results as tables."""

    _cluster: Cluster
    _names: Names

    def table(
        self,
        query: str,
        *,
        last: str | timedelta | None = None,
        kinds: Kinds = "best",
        complete: bool = True,
    ) -> Any:
        """Return a query's answers as a ``pyarrow.Table``, a row for each window and key.

        Args:
            query: the query's name.
            last: only windows that end in the last ``"1h"`` of event time, counted back from the
                end of the last window in the table; None: all that the topics hold.
            kinds: ``best``: the exact answer, or the tentative one that is in force; ``exact``:
                exact answers only; ``all``: also the tentative ones that were withdrawn.
            complete: without windows at the end that not all parts of the query have answered.

        Columns: ``window_start``, ``window_end`` (timestamps in us, UTC); ``stime`` (the same, of
        a query without a window); ``key``; the figures, ``temperature_avg``; ``generation`` of the
        definition; ``tentative``; ``missing``, names of streams joined by a comma, empty if none
        is; ``lost``, readings of the window that retention deleted before they were used;
        ``latency_ms`` from the window's normal time until the answer was written. With ``all``
        also ``withdrawn``, and for each figure ``temperature_avg_error``: the withdrawn figure
        less the exact one, null in other rows.

        The metadata of the schema has ``slackwater``, a JSON object: see ``frame``.

        Raises:
            UsageError: ``last`` is not a duration, or ``kinds`` is unknown.
            EnvironmentProblem: the broker does not answer, or the query does not exist.
        """
        from slackwater.client.result_logs import read_answers

        last_us = _duration_us(last)
        if kinds not in KINDS:
            raise UsageError(f"kinds={kinds!r}: choose among {', '.join(KINDS)}")
        parts = partition_count(self._cluster, self._names.results(query, "stable"))
        transport = KafkaTransport(self._cluster, self._names)
        answers, answered = read_answers(transport, query, parts, kinds, last_us, complete=complete)
        return _with_notes(query, answers, answered)

    def frame(
        self,
        query: str,
        *,
        last: str | timedelta | None = None,
        kinds: Kinds = "best",
        complete: bool = True,
    ) -> Any:
        """Return ``table`` as a ``pandas.DataFrame``; needs pandas (``slackwater[pandas]``).

        A count with missing values is float64, as pandas has no missing int64. ``attrs`` has
        ``query``; ``answered_to``, the end of the last window that all parts have answered, as
        text (None: one has no answer); ``incomplete``, answers that were left out since some of
        their rows are deleted; ``skipped``, answers in force without rows, as their windows were
        overdue and have not been computed.

        Raises:
            EnvironmentProblem: also if pandas is not installed.
        """
        if importlib.util.find_spec("pandas") is None:
            raise EnvironmentProblem(
                "a frame needs pandas: install slackwater[pandas], or use Client.table (Arrow)"
            )
        table = self.table(query, last=last, kinds=kinds, complete=complete)
        frame = table.to_pandas()
        frame.attrs = json.loads(table.schema.metadata[NOTES])
        return frame


def _duration_us(last: str | timedelta | None) -> int | None:
    if last is None:
        return None
    try:
        us = last // timedelta(microseconds=1) if isinstance(last, timedelta) else None
        us = parse_duration_us(str(last)) if us is None else us
    except ValueError as error:
        raise UsageError(f"last: {error}") from error
    if us <= 0:
        raise UsageError(f"last={last!r}: write a duration above 0")
    return us


def _with_notes(query: str, answers: AnswerTable, answered: AnsweredTo) -> Any:
    if answered.complete is None and answered.any is not None:
        _log.warning("results of %s: a part has no answer, so no window is whole", query)
    if answers.incomplete:
        _log.warning(
            "results of %s: answers left out since some of their rows are deleted: %d",
            *(query, answers.incomplete),
        )
    notes = {
        "query": query,
        "answered_to": None if answered.complete is None else format_time(answered.complete),
        "incomplete": answers.incomplete,
        "skipped": answers.skipped,
    }
    return answers.table.replace_schema_metadata({NOTES: json.dumps(notes)})
