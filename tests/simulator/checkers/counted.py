"""guarantee-6, counted: each reading that a sensor has sent has exactly one fate.

It is in the source log or in quarantine, once. The newest readings may still be in flight. A
message that a topic has lost before it was read is in neither, and its stream's log and results
report a gap. Not reported is what Kafka has lost under the same topic id (an unclean election)
before anybody has read it. Of those that took the offsets of messages that were read it is not
known how many there were, if retention has deleted them by then.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Set
from typing import Any, Final

import orjson
from tests.simulator.checkers.answers import Violation
from tests.simulator.checkers.batch import gaps
from tests.simulator.checkers.facts import Facts
from tests.simulator.history import History
from tests.simulator.readings import SensorReading
from tests.simulator.topics import Message, TopicHistory, decoded

from slackwater.model.records import Kind

Known = tuple[int, str, str]
_PLACE: Final = re.compile(r"(\d+):(\d+)@(.+)")
"""A quarantine entry's position: partition, offset and id of the topic."""


def check(facts: Facts) -> None:
    """Check every reading of every stream."""
    history = facts.history
    for stream, readings in history.sent.items():
        refused = [reading for _, reading in history.refused.get(stream, [])]
        _compare(facts, stream, _count(facts, readings), refused)
    for stream, topic in history.topics.items():
        _of_topic(facts, stream, topic)


def _of_topic(facts: Facts, stream: str, topic: TopicHistory) -> None:
    entries = _valid(facts.history, stream)
    # Entries after the last record may be written twice, at one place.
    distinct = {entry["position"]: decoded(entry["payload"]) for entry in entries}
    sent, refused = topic.messages, list(distinct.values())
    kept = _count(facts, [*facts.accepted[stream], *refused])
    unread = [m for m in sent if _known(m.reading) not in kept]
    read = {m.place for m in sent if _known(m.reading) in kept}
    excused = [m for m in unread if m in topic.truncated]
    gone = topic.expired | topic.deleted
    lost = [m for m in unread if m.place in gone and m not in topic.truncated]
    without = {_known(m.reading) for m in (*lost, *excused)}
    rest = [m.reading for m in sent if _known(m.reading) not in without]
    _compare(facts, stream, _count(facts, rest), refused)
    _check_reported(facts, stream, topic, lost, read)


def _valid(history: History, stream: str) -> list[dict[str, Any]]:
    """Return the entries in quarantine that count: not those of superseded proxies (trace-23)."""
    found = []
    for entry in map(orjson.loads, history.quarantined.get(stream, [])):
        place = _PLACE.fullmatch(entry["position"])
        assert place is not None
        partition, offset, topic_id = place.groups()
        spool = f"topic:{stream}:{partition}:{topic_id}"
        if not any(
            record.kind is Kind.START
            and record.spool == spool
            and at > entry["incarnation"]
            and record.input_position <= int(offset)
            for at, record in history.source_logs[f"{stream}.{partition}"]
        ):
            found.append(entry)
    return found


def _check_reported(
    facts: Facts,
    stream: str,
    topic: TopicHistory,
    lost: list[Message],
    read: Set[tuple[str, int, int]],
) -> None:
    """Check that source logs report what was lost, and that results name it.

    It is known how many messages retention has deleted, unless the topic was deleted after that;
    then, and if it was deleted with its messages, it is known that there may have been some. So it
    is of messages at places that were ``read`` before Kafka truncated them.
    """
    history = facts.history
    lost = [m for m in lost if _is_old(facts, m) and not topic.is_before_its_beginning(m)]
    for log, mine in _by_log(history, stream, lost).items():
        expired = sum(m.topic_id == topic.last_id and m.place not in read for m in mine)
        least = expired + (len(mine) > expired)
        reported = gaps(history.source_logs[log])
        if reported < least:
            text = f"{log}: {len(mine)} messages were lost, it reports {reported}, not {least}"
            raise Violation("counted", history.ended_at, text)
    named = {name for part in facts.answers for a in part if a.stable for name in a.lost}
    if facts.config.children_of:  # r may have been applied after the loss
        lost = [m for m in lost if m.reading.stime >= facts.config.start_time_us]
    if lost and stream in facts.config.streams and stream not in named:
        text = f"{stream}: {len(lost)} messages were lost, and no stable answer says so"
        raise Violation("counted", history.ended_at, text)


def _by_log(history: History, stream: str, lost: list[Message]) -> dict[str, list[Message]]:
    """Return messages by the log that reports them.

    The log of their partition, if a writer has begun it under their id; else the first one.
    """
    begun = {
        (log, record.spool)
        for log in history.logs(stream)
        for _, record in history.source_logs[log]
        if record.kind is Kind.START
    }
    found: dict[str, list[Message]] = {}
    for message in lost:
        log = f"{stream}.{message.partition}"
        is_its_own = (log, f"topic:{stream}:{message.partition}:{message.topic_id}") in begun
        found.setdefault(log if is_its_own else history.logs(stream)[0], []).append(message)
    return found


def _is_old(facts: Facts, message: Message) -> bool:
    return message.reading.stime < facts.settled_to


def _compare(facts: Facts, stream: str, sent: Counter[Known], refused: list[SensorReading]) -> None:
    history = facts.history
    kept = _count(facts, [*facts.accepted[stream], *refused])
    for (stime, key, value), n in (sent - kept).items():
        at = (stime - facts.config.start_time_us) / 1e6
        text = f"{stream}: {n} readings of {at:g} s, {key} = {value}, are nowhere"
        raise Violation("counted", history.ended_at, text)
    for (stime, key, value), n in (kept - sent).items():
        at = (stime - facts.config.start_time_us) / 1e6
        text = f"{stream}: {n} readings too many of {at:g} s, {key} = {value}"
        raise Violation("counted", history.ended_at, text)


def _known(reading: SensorReading) -> Known:
    return reading.stime, reading.key, repr(reading.value)


def _count(facts: Facts, readings: Iterable[SensorReading]) -> Counter[Known]:
    return Counter(_known(r) for r in readings if r.stime < facts.settled_to)
