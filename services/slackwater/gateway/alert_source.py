"""Follows the alerts of all queries for the hub, in one thread, whatever the number of queries.

An alert topic is compacted and is its own state, so it is read from its beginning. The state is
reported once all that there was has been read, then after each change, at most every
``REPORT_EVERY_S``. A topic that is deleted, made again or added is another set of topics, and all
are read again. Without an alert topic there is no reader.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from slackwater.delivery.records import AlertRecord, decode_delivery
from slackwater.delivery.view import AlertView
from slackwater.gateway.alerts import Rules, alerts_frame, alerts_json, rules_of
from slackwater.model.deployment import QuerySpec
from slackwater.model.errors import EnvironmentProblem, MalformedRecordError, SlackwaterError
from slackwater.runtime.logs.skipped import SKIPPED
from slackwater.runtime.logs.transport import Log, Reader, Transport
from slackwater.runtime.service.registry import Registry

_log = logging.getLogger(__name__)
POLL_S: Final = 5.0
"""A poll returns as soon as there is a record; this is how late it notices other queries."""
AGAIN_S: Final = 1.0
REPORT_EVERY_S: Final = 0.2
READ_S: Final = 0.1
"""Time between two looks whether all has been read: the end is often a marker, not a record."""
SETTLE_S_MAX: Final = 5.0
"""How long a request waits until the alerts have been read."""
_NO_RULES: Final[Rules] = {}


class AlertSource:
    """The alerts of the queries that ``set_queries`` has named last.

    Args:
        transport: to the logs of the deployment.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._report: Callable[[bytes], None] = lambda _: None
        self._queries: Mapping[str, QuerySpec] | None = None
        self._view, self._rules = AlertView(), _NO_RULES
        self._lock = threading.Lock()
        self._is_other, self._is_read, self._stopping = (threading.Event() for _ in range(3))

    def set_queries(self, queries: Mapping[str, QuerySpec]) -> None:
        """Accept all queries that there are, by name; the thread ends its poll soon."""
        if queries != self._queries:
            self._queries = queries
            self._is_other.set()

    def stop(self) -> None:
        """End soon."""
        self._stopping.set()
        self._is_other.set()

    def to_json(self) -> dict[str, Any]:
        """Return all rules and alerts.

        Raises:
            EnvironmentProblem: they have not been read.
        """
        if not self._is_read.wait(SETTLE_S_MAX):
            raise EnvironmentProblem("the alerts have not been read")
        with self._lock:
            return alerts_json(self._view, self._rules)

    def run(self, report: Callable[[bytes], None]) -> None:
        """Follow until stopped; ``report`` gets each state as a server-sent event."""
        self._report = report
        self._is_other.wait()
        while not self._stopping.is_set():
            self._is_other.clear()
            try:
                self._follow(self._queries or {})
            except SlackwaterError as error:
                _log.info("cannot read the alerts, will retry: %s", error)
            self._is_other.wait(AGAIN_S)

    def _present_topics(self, queries: Iterable[str]) -> dict[str, str]:
        """Return the ids of the alert topics that there are, by name."""
        wanted = {self._transport.names.alerts(query) for query in queries}
        known = Registry(self._transport).topics() if wanted else {}
        return {topic: known[topic] for topic in sorted(wanted & known.keys())}

    def _follow(self, queries: Mapping[str, QuerySpec]) -> None:
        """Read the topics of these queries until the queries are others, or a topic is added."""
        topics, rules = self._present_topics(queries), rules_of(queries)
        is_complete = {self._transport.names.alerts(query) for query, _ in rules} <= topics.keys()
        if not topics:
            self._show(AlertView(), rules)
            self._is_other.wait(None if is_complete else AGAIN_S)
            return
        reader = self._transport.reader(isolation="read_committed")
        try:
            logs: list[Log] = [(topic, 0) for topic in topics]
            ends = self._transport.end_offsets(logs, isolation="read_committed")
            reader.assign(self._transport.beginning_offsets(logs))
            view, is_new = AlertView(), True
            while not self._is_other.is_set():
                at_present = all(reader.position(log) >= ends[log] for log in logs)
                if at_present and is_new:
                    self._show(view, rules)
                    is_new = False
                    self._stopping.wait(REPORT_EVERY_S)
                within_s = POLL_S if is_complete else AGAIN_S
                is_new |= self._take(reader, view, within_s if at_present else READ_S)
                if not is_complete and self._present_topics(queries) != topics:
                    return
        finally:
            reader.close()

    def _take(self, reader: Reader, view: AlertView, within_s: float) -> bool:
        """Take what there is, and wait for the first of it; whether there was something."""
        records = reader.poll(timeout_s=within_s)
        taken = False
        with self._lock:
            for raw in records:
                try:
                    record = decode_delivery(raw.value, raw.topic)
                except MalformedRecordError as error:
                    SKIPPED.note(*raw.log, raw.offset, "not a record of alerts", error.reason)
                    continue
                if isinstance(record, AlertRecord):
                    view.take(record)
                    taken = True
        return taken

    def _show(self, view: AlertView, rules: Rules) -> None:
        with self._lock:
            self._view, self._rules = view, rules
            frame = alerts_frame(view, rules)
        self._is_read.set()
        self._report(frame)
