"""What the readings of a stream show: fields that no reading has, and devices with wrong clocks.

A declared field that matches nothing is no error: readings may lack fields. But if none of the
first hundred has it, the declaration is probably wrong, and its results count 0 for ever. The log
then has a warning with the names that a message has, nearest first, and the heartbeat has them too.

The offset of a device is the time of its reading less the proxy's clock when it was read; only a
device whose clock is ahead, or that sends late, has a large one. The ten worst are reported, and
the unit that their times seem to have, if it is another than the declared one.
Everything is computed by column, a few numpy calls for each batch.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from slackwater.formats.json_text import Unreadable, load_value
from slackwater.model.deployment import FieldSpec, StreamSpec
from slackwater.model.message_paths import Step, path_text
from slackwater.primitives.time_units import meant_unit
from slackwater.protocols.dpc.source.arrived import Arrived
from slackwater.runtime.service.parts import HAS, OFFERED, OFFSET_MS, READINGS_MIN, THERE, UNIT

_log = logging.getLogger(__name__)
DEVICES_MAX: Final = 10
FIELDS_MAX: Final = 64
"""Maximum fields in the heartbeat; those that the fewest readings have."""
WARNINGS_MAX: Final = 10
"""Maximum fields that are explained at once."""
NAMES_MAX: Final = 10
"""Maximum names of a message in the warning and in the heartbeat."""
NAME_CHARS_MAX: Final = 64
OFFSET_US_MIN: Final = 1_000_000
"""Smaller offsets are not reported: a delay on the way looks like a clock that is behind."""
OFFSET_KEPT_US: Final = 300_000_000
"""Time after which a device that is not among the worst any more is forgotten."""
_NAMES_LOOKED_AT_MAX: Final = 200
_DEPTH_MAX: Final = 5
_NEVER: Final = np.iinfo(np.int64).min


class Observed:
    """Counts of one stream since the start of its proxy."""

    def __init__(self, spec: StreamSpec) -> None:
        self._spec = spec
        self._offered = 0
        self._have = np.zeros(len(spec.fields), np.int64)
        self._reported: set[int] = set()
        self._there: list[str] = []
        self._devices: dict[str, tuple[int, int]] = {}
        """By key: the offset, and the clock when it was seen (us)."""

    def note(self, arrived: Arrived, clock_us: int | None) -> None:
        """Count a batch of readings; ``clock_us``: the clock that they are compared with."""
        if not len(arrived):
            return
        self._offered += len(arrived)
        for i, column in enumerate(arrived.values):
            self._have[i] += len(column) - np.count_nonzero(np.isnan(column))
        if clock_us is not None:
            self._compare(arrived, clock_us)

    @property
    def asks(self) -> bool:
        """Whether a message is needed, for a warning about a field that no reading has."""
        if self._offered < READINGS_MIN or len(self._reported) == len(self._have):
            return False
        return any(i not in self._reported for i in np.flatnonzero(self._have == 0).tolist())

    def tell(self, message: bytes | str) -> None:
        """Warn of each field that no reading has; ``message``: one of those read last."""
        names = dict(_names_in(message))
        new = [i for i in np.flatnonzero(self._have == 0).tolist() if i not in self._reported]
        self._reported.update(new)
        fields = [self._spec.fields[i] for i in new]
        self._there = nearest(fields[0], names) if fields else self._there
        for field in fields[:WARNINGS_MAX]:
            _log.warning(
                "stream %s: none of %d readings has field %s%s",
                *(self._spec.name, self._offered, field.name, _explained(field, names)),
            )
        if fields[WARNINGS_MAX:]:
            more = len(fields) - WARNINGS_MAX
            _log.warning("stream %s: nor any of %d more fields", self._spec.name, more)

    def detail(self) -> dict[str, int]:
        """Return the counts for the heartbeat; bounded."""
        found = {OFFERED: self._offered}
        rarest = np.argsort(self._have, kind="stable")[:FIELDS_MAX].tolist()
        found |= {HAS + self._spec.fields[i].name: int(self._have[i]) for i in rarest}
        if self._there and not self._have.all():
            found |= {THERE + _shown(name): i for i, name in enumerate(self._there, 1)}
        for key, (offset_us, _) in self._devices.items():
            found[OFFSET_MS + _shown(key)] = offset_us // 1_000
        declared = self._spec.time.unit
        for offset_us, clock_us in self._devices.values():
            if (meant := meant_unit(clock_us + offset_us, clock_us, declared)) is not None:
                name = f"{UNIT}{declared}.{meant}"
                found[name] = found.get(name, 0) + 1
        return found

    def _compare(self, arrived: Arrived, clock_us: int) -> None:
        """Keep the devices with the largest offsets, of this batch and of earlier ones."""
        latest = np.full(len(arrived.keys), _NEVER, np.int64)
        np.maximum.at(latest, arrived.key_index, arrived.stimes - clock_us)
        present = np.flatnonzero(latest != _NEVER)
        sizes = np.abs(latest[present])
        if len(present) > DEVICES_MAX:
            worst = np.argpartition(sizes, -DEVICES_MAX)[-DEVICES_MAX:]
            present = present[worst]
        elif not self._devices and sizes.max() < OFFSET_US_MIN:
            return
        oldest_us = clock_us - OFFSET_KEPT_US
        devices = {key: kept for key, kept in self._devices.items() if kept[1] > oldest_us}
        devices |= {arrived.keys[i]: (int(latest[i]), clock_us) for i in present.tolist()}
        large = [each for each in devices.items() if abs(each[1][0]) >= OFFSET_US_MIN]
        large.sort(key=lambda each: -abs(each[1][0]))
        self._devices = dict(large[:DEVICES_MAX])


def nearest(field: FieldSpec, names: dict[str, str]) -> list[str]:
    """Return the paths of a message's names, those most like the declared one first."""

    def likeness(path: str) -> float:
        declared, name = (text[:NAME_CHARS_MAX].lower() for text in (field.source, names[path]))
        return difflib.SequenceMatcher(None, declared, name).ratio()

    return sorted(names, key=likeness, reverse=True)[:NAMES_MAX]


def _explained(field: FieldSpec, names: dict[str, str]) -> str:
    """Return what follows the field in the warning."""
    if not names:
        return f" ({field.source})"
    for path, name in names.items():
        if name == field.source and path != name:
            return f": {name!r} is there, as one name; write it in double quotes, '{path}'"
    there = ", ".join(_shown(path) for path in nearest(field, names))
    return f" ({field.source}); a message has {there}"


def _names_in(message: bytes | str) -> Iterator[tuple[str, str]]:
    """Yield the path and the bare name of each value of a message in JSON, if it is that."""
    body = message.encode() if isinstance(message, str) else message
    value = None
    for text in (body, body.partition(b"\n")[0]):  # a body may have an object in each line
        with contextlib.suppress(Unreadable, ValueError, RecursionError):
            value = load_value(text)
            break
    if isinstance(value, list) and value:
        value = value[0]
    for i, steps in enumerate(_leaves(value, ())):
        if i == _NAMES_LOOKED_AT_MAX:
            return
        yield path_text(steps), ".".join(map(str, steps))


def _leaves(value: Any, steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    if len(steps) < _DEPTH_MAX and isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, (*steps, name))
    elif len(steps) < _DEPTH_MAX and isinstance(value, list) and _is_nested(value):
        yield from _leaves(value[0], (*steps, 0))
    elif steps:
        yield steps


def _is_nested(value: list[Any]) -> bool:
    return bool(value) and isinstance(value[0], dict | list)


def _shown(name: str) -> str:
    """Return a name as it can be shown in a line."""
    shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in name)
    return shown if len(shown) <= NAME_CHARS_MAX else shown[: NAME_CHARS_MAX - 3] + "..."
