"""Input from an MQTT broker: spooled, then acknowledged, then sent.

A message is acknowledged once its readings are in the spool and its malformed parts in the
quarantine topic. If the process is killed before the acknowledgement, the broker sends the message
again. If its readings had been stored by then, only the device's counter (``sequences``) identifies
the duplicate. Messages are committed in groups: at each cut point, and earlier once half of the
broker's window is waiting, so that the broker never waits for a cut point.

While the spool is full, or Kafka does not accept quarantine entries, no message is acknowledged or
read. The broker then keeps the messages, up to its limits.

A boundary that follows the clock (``sporadic``) has the time of a probe to which the broker
responded while its window had room (``link``): at that time the broker held no message back. While
the connection is down, or the broker has a backlog, no such boundary is sent, and the stream is
missing like any other disconnected stream.

A message's position is its topic and a number, which counts the stream's messages over restarts.
Uncommitted messages get the same numbers if they are received again in the same order.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import numpy as np

from slackwater.formats.carried import times_of_arrival
from slackwater.model.limits import NEVER
from slackwater.model.records import type_i64
from slackwater.protocols.dpc.source.arrived import Arrived
from slackwater.proxy.mqtt.link import Link, Message
from slackwater.proxy.mqtt.messages import CountedReadings, MqttReader
from slackwater.proxy.mqtt.sequences import TABLES, Sequences, device_of
from slackwater.proxy.quarantine import QuarantineEntry, why
from slackwater.proxy.rules import follows_clock, live_rules
from slackwater.proxy.shell import InputContext
from slackwater.proxy.sourcelog import SourceLog
from slackwater.proxy.spool import PushBackError
from slackwater.proxy.spooled import SpooledLog

_log = logging.getLogger(__name__)
MESSAGES_MAX: Final = 5_000
"""Maximum messages of one commit."""
RETRY_US: Final = 20_000
FULL_RETRY_US: Final = 500_000
UNPACED_US: Final = 100_000
ANSWER_US_MAX: Final = 250_000
"""Maximum wait at a cut point for the response to a probe."""
WAIT_S_MAX: Final = 0.2
"""Maximum wait in a step; a stop is checked between steps."""


class Connector(Protocol):
    """Keeps a link connected to the broker."""

    def start(self, left: Sequence[str], *, expects_session: bool) -> None:
        """Start to connect; ``left``: filters of an earlier deployment file, to unsubscribe."""
        ...

    def close(self) -> None:
        """End the connection; the broker keeps the session."""
        ...


@dataclass(slots=True)
class _Cut:
    """The next cut point, and the probe for it."""

    at_us: int | None = None
    """Event time; None before the first one."""
    asked_at_us: int | None = None
    """Wall time of the pending probe."""


class MqttInput:
    """Input of a stream that is read from an MQTT broker."""

    def __init__(self, context: InputContext, link: Link, connector: Connector) -> None:
        spec = context.spec
        assert spec.mqtt is not None
        self._context, self._link, self._connector = context, link, connector
        self._by_clock = follows_clock(context)
        self._by_arrival = spec.time.from_ == "arrival"
        self._spooled = SpooledLog(context, live_rules(context, spec.name))
        self._reader = MqttReader(spec, context.dead_letters)
        self._sequences: Sequences | None = None
        self._urgent = max(1, spec.mqtt.in_flight // 2) if spec.mqtt.qos else MESSAGES_MAX
        self._uncommitted: list[Message] = []
        self._number = 0
        """Messages read so far, over all restarts."""
        self._cut = _Cut()
        self._is_noted = False
        """Whether the current filters are stored in the spool."""
        self._clear_us: int | None = None
        """Wall time up to which all messages at the broker have been read; None if unknown."""
        self._repeated = 0
        self._is_full = False

    @property
    def logs(self) -> Sequence[SourceLog]:
        """The one source log."""
        return (self._spooled.log,)

    def begin(self) -> None:
        """Take over the log, send unsent records, and connect."""
        context, mqtt = self._context, self._context.spec.mqtt
        assert mqtt is not None
        self._spooled.begin()
        if mqtt.sequence is not None:
            self._sequences = Sequences(context.spool.own(TABLES))
        self._number = max(context.spool.position(_POSITION), self._reader.first_number)
        before = context.spool.hints().get(_TOPICS)
        subscribed = () if before is None else before["topics"]
        left = [each for each in subscribed if each not in mqtt.topics]
        self._connector.start(left, expects_session=before is not None)

    # Steps.

    def step(self, now_us: int) -> int:
        """Read, commit and acknowledge messages; at a cut point also send a boundary."""
        self._spooled.acknowledge()
        self._spooled.send()  # without room in Kafka readings wait in the spool, not at the broker
        if not self._context.quarantine.settle():
            return now_us + RETRY_US
        try:
            wake_us = self._work(now_us)
        except PushBackError as full:
            if not self._is_full:
                _log.warning("%s; messages remain at the broker until there is room", full)
            self._is_full = True
            return now_us + FULL_RETRY_US
        self._is_full = False
        return wake_us

    def _work(self, now_us: int) -> int:
        link = self._link
        if self._is_full:
            self._commit(None)
        if link.is_connected and not self._is_noted:
            self._note_topics()
        self._take(now_us)
        if not self._context.quarantine.settle():
            return now_us + RETRY_US
        if len(self._uncommitted) >= self._urgent or self._spooled.core.is_full:
            self._commit(None)
        if link.waiting >= self._urgent:
            return now_us
        wake_us = self._step_cut(now_us)
        if wake_us > now_us:
            few = max(1, self._urgent - len(self._uncommitted))
            link.wait(few, min(WAIT_S_MAX, (wake_us - now_us) / 1e6))
        return min(wake_us, now_us + int(WAIT_S_MAX * 1e6))

    def _step_cut(self, now_us: int) -> int:
        """At a cut point commit waiting readings and the boundary; return when to step again."""
        context, cut = self._context, self._cut
        event_us = context.event_us(now_us)
        if event_us is not None and cut.at_us is not None and event_us < cut.at_us:
            return context.wall_us(cut.at_us)
        clock_us = None
        if self._by_clock:
            if self._awaits_answer(now_us):
                assert cut.asked_at_us is not None
                return cut.asked_at_us + ANSWER_US_MAX
            if self._clear_us is not None:
                clock_us = context.event_us(self._clear_us)
        self._commit(clock_us)
        self._clear_us = cut.asked_at_us = None
        if event_us is None:
            return now_us + UNPACED_US
        cut.at_us = self._spooled.core.next_flush_us(event_us, context.default_grid)
        return context.wall_us(cut.at_us)

    def _awaits_answer(self, now_us: int) -> bool:
        """Send one probe per cut point; return whether its response may still arrive."""
        if not self._link.is_connected:
            return False
        cut = self._cut
        if cut.asked_at_us is None:
            cut.asked_at_us, self._clear_us = now_us, None
            self._link.ask()
        return self._clear_us is None and now_us < cut.asked_at_us + ANSWER_US_MAX

    # Reading.

    def _take(self, now_us: int) -> None:
        """Parse received messages and offer the readings; unusable parts go to quarantine."""
        core = self._spooled.core
        room = max(1, core.rules.rows_max - core.waiting)
        messages, clear_us = self._link.take(min(MESSAGES_MAX, room))
        self._clear_us = self._clear_us if clear_us is None else clear_us
        if not messages:
            return
        first, self._number = self._number, self._number + len(messages)
        entries: list[QuarantineEntry] = []
        for readings in self._reader.read(first, messages, self._times(messages)):
            entries += self._offer(readings, now_us)
        self._context.quarantine.put(entries, now_us)
        self._uncommitted += messages

    def _times(self, messages: Sequence[Message]) -> type_i64 | None:
        """Return times of arrival in event time, if the stream has these; else None."""
        if not self._by_arrival:
            return None
        shown = [self._context.event_us(message.arrived_us) or 0 for message in messages]
        return times_of_arrival(np.array(shown, np.int64), self._spooled.core)

    def _offer(self, readings: CountedReadings, now_us: int) -> list[QuarantineEntry]:
        """Offer readings to the log; return the entries of those refused."""
        parsed, entries = readings.parsed, readings.malformed()
        self._context.not_finite += parsed.not_finite
        fresh = self._fresh(readings, entries)
        indices, stimes = parsed.indices[fresh], parsed.stimes[fresh]
        arrived = Arrived(
            stimes,
            parsed.key_index[fresh],
            parsed.keys,
            tuple(column[fresh] for column in parsed.values),
            np.full(len(indices), self._number, np.int64),
            self._number,
        )
        core, payload = self._spooled.core, readings.messages[-1].payload
        for refused in self._context.offer(core, arrived, now_us, lambda: payload):
            entries += [
                replace(
                    readings.entry(int(indices[i]), refused.reason, int(stimes[i])),
                    detail=why(refused, int(stimes[i])),
                    key=arrived.keys[int(arrived.key_index[i])],
                )
                for i in refused.indices.tolist()
            ]
        return entries

    def _fresh(self, readings: CountedReadings, entries: list[QuarantineEntry]) -> Any:
        """Return a mask of new readings; add entries for those that a device has repeated."""
        parsed, messages = readings.parsed, readings.messages
        if self._sequences is None:
            return np.ones(len(parsed.indices), np.bool_)
        numbers = readings.message_numbers().tolist()
        devices = [
            device_of(messages[i].topic, parsed.keys[k])
            for i, k in zip(numbers, parsed.key_index.tolist(), strict=True)
        ]
        # A message that arrives again has a later time, so then the counter alone decides.
        stimes = np.full(len(devices), NEVER) if self._by_arrival else parsed.stimes
        fresh = self._sequences.fresh(numbers, devices, readings.sequences, stimes)
        new = np.flatnonzero(fresh)
        keys = parsed.key_index
        names = [f"{messages[numbers[i]].topic} {parsed.keys[keys[i]]}" for i in new.tolist()]
        counters = readings.sequences[new].astype(np.float64)
        places = {name: at for at, name in enumerate(dict.fromkeys(names))}
        index = np.array([places[name] for name in names], np.int64)
        self._context.skipped.note([*places], index, counters, parsed.stimes[new])
        self._repeated += int(np.count_nonzero(~fresh))
        # The broker marks messages that it repeats. Readings that the device repeats are kept in
        # quarantine: they may be new, from a device whose counter and clock were both set back.
        entries += [
            readings.entry(int(parsed.indices[i]), "duplicate", int(parsed.stimes[i]))
            for i in np.flatnonzero(~fresh).tolist()
            if not messages[numbers[i]].is_repeated
        ]
        return fresh

    def _commit(self, clock_us: int | None) -> None:
        """Store the messages read so far, then acknowledge them."""
        messages, core = self._uncommitted, self._spooled.core
        positions = {_POSITION: self._number}
        if messages and not core.waiting:
            self._context.spool.append((), core.largest, positions, self._store)
            self._acknowledge()
        if self._spooled.flush(clock_us, positions, self._store):
            self._acknowledge()

    def _note_topics(self) -> None:
        mqtt = self._context.spec.mqtt
        assert mqtt is not None
        self._context.spool.keep_hints({_TOPICS: {"topics": list(mqtt.topics)}})
        self._is_noted = True

    def _store(self, db: sqlite3.Connection) -> None:
        if self._sequences is not None:
            self._sequences.store(db)

    def _acknowledge(self) -> None:
        if self._sequences is not None:
            self._sequences.stored()
        self._link.acknowledge(self._uncommitted)
        self._uncommitted = []

    def detail(self) -> dict[str, int]:
        """Return counters for the heartbeat."""
        return {
            "readings": self._spooled.core.next_id,
            "blank": 0,
            "spool_bytes": self._context.spool.bytes_held,
            "connected": int(self._link.is_connected),
            "repeated": self._repeated,
            "retained": self._link.retained,
            "sessions_lost": self._link.sessions_lost,
            **self._context.counts(),
        }

    def leave(self) -> None:
        """Delete from the spool what the log has, so that a restart does not send it again."""
        self._spooled.acknowledge()

    def close(self) -> None:
        """Close connection and spool; the broker keeps messages that are not acknowledged."""
        self._connector.close()
        self._context.spool.close()


_POSITION: Final = "mqtt"
"""Name of the input in the spool."""
_TOPICS: Final = "mqtt:topics"
"""Name of the hint with the filters; no log has a colon in its name."""
