"""Keys and times that are not in a message but in what carries it.

A message is parsed as if its key were a constant and its time 0. The key and the time of what
carries it, the topic of an MQTT message, the record of a Kafka topic, the moment of arrival, are
then set for all its readings. A message whose carrier has none is malformed, reading by reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from slackwater.formats.columns import KEY, TIME, key_chars_max
from slackwater.formats.messages import Bad, Parsed
from slackwater.model.deployment import KeySpec, StreamSpec
from slackwater.model.limits import NEVER
from slackwater.model.records import type_i32, type_i64

CLOCK_BACK_US_MAX: Final = 1_000_000
"""By how much a clock may be behind a time of arrival that it has shown before, for example after a
restart: the time is then that one again. A reading behind by more is late, like any other."""
NO_TIME: Final = NEVER
"""Time of a record that has none."""
_ANY_KEY: Final = KeySpec(value="-")
"""Stands for a key from elsewhere while messages are parsed."""


def without_carried_key(spec: StreamSpec) -> StreamSpec:
    """Return the declaration with which the messages of a stream are parsed."""
    key = spec.key
    is_carried = key.from_ is not None or key.level is not None or key.levels
    return replace(spec, key=_ANY_KEY) if is_carried else spec


@dataclass(frozen=True, slots=True)
class CarriedKeys:
    """The keys of some messages: message i has ``texts[index[i]]``.

    ``faults[code]`` is the detail of the messages whose key cannot be used; else it is empty.
    """

    index: type_i32
    texts: Sequence[str]
    faults: Sequence[str]


def with_keys(parsed: Parsed, keys: CarriedKeys) -> Parsed:
    """Set the key of each reading to that of its message."""
    codes = keys.index[_messages_of(parsed)]
    parsed = replace(parsed, key_index=codes, keys=keys.texts)
    if not any(keys.faults):
        return parsed
    is_wrong = np.array([bool(fault) for fault in keys.faults], np.bool_)[codes]
    bad = [
        Bad(int(parsed.indices[i]), keys.faults[codes[i]], int(parsed.stimes[i]))
        for i in np.flatnonzero(is_wrong).tolist()
    ]
    return _without(parsed, is_wrong, bad)


def with_times(parsed: Parsed, times: type_i64) -> Parsed:
    """Set the time of each reading to that of its message; ``NO_TIME`` makes it malformed."""
    at = _messages_of(parsed)
    stimes = times[at]
    elements = parsed.elements
    bad = tuple(
        replace(one, stime=_known(times, one.index if elements is None else
                                  int(elements.messages[one.index])))
        for one in parsed.bad
    )  # fmt: skip
    parsed = replace(parsed, stimes=stimes, bad=bad)
    is_wrong = stimes == NO_TIME
    if not is_wrong.any():
        return parsed
    more = [
        Bad(int(parsed.indices[i]), f"{TIME}: its record has none", None)
        for i in np.flatnonzero(is_wrong).tolist()
    ]
    return _without(parsed, is_wrong, more)


def texts_as_keys(texts: Sequence[str], where: str) -> tuple[list[str], list[str]]:
    """Return the keys of some texts, and the fault of each; ``where`` names their source.

    The replacement character stands for bytes that were not UTF-8.
    """
    keys, faults = [], []
    for text in texts:
        key = text.strip()
        fault = ""
        if not key:
            fault = f"{KEY}: {where} has none"
        elif "\N{REPLACEMENT CHARACTER}" in key:
            fault = f"{KEY}: that of {where} is not UTF-8"
        elif len(key) > key_chars_max:
            fault = f"{KEY}: that of {where} has more than {key_chars_max} characters"
        keys.append("" if fault else key)
        faults.append(fault)
    return keys, faults


class Extent(Protocol):
    """How far a source log is in event time: a source core."""

    largest: int
    watermark: int


def times_of_arrival(clock_us: type_i64, extent: Extent) -> type_i64:
    """Return times of arrival, which increase in the order of arrival, from what a clock showed."""
    at_least = max(extent.largest, extent.watermark)
    times: type_i64 = np.maximum.accumulate(np.maximum(clock_us, at_least))
    return np.where(times - clock_us <= CLOCK_BACK_US_MAX, times, clock_us)


def _messages_of(parsed: Parsed) -> type_i64:
    """Return the message of each reading."""
    elements = parsed.elements
    return parsed.indices if elements is None else elements.messages[parsed.indices]


def _known(times: type_i64, message: int) -> int | None:
    time = int(times[message])
    return None if time == NO_TIME else time


def _without(parsed: Parsed, which: npt.NDArray[np.bool_], bad: Sequence[Bad]) -> Parsed:
    """Return ``parsed`` with some readings replaced by errors."""
    kept = ~which
    return replace(
        parsed,
        indices=parsed.indices[kept],
        stimes=parsed.stimes[kept],
        key_index=parsed.key_index[kept],
        values=tuple(column[kept] for column in parsed.values),
        bad=tuple(sorted((*parsed.bad, *bad), key=lambda one: one.index)),
    )
