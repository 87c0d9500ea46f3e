"""Common parts of all body formats: the limit of readings, and the readings of a body as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from slackwater.model.deployment import StreamSpec
from slackwater.model.message_paths import name_of_column
from slackwater.proxy.requests import UnusableBody

READINGS_MAX: Final = 100_000
"""Maximum readings of one body."""


@dataclass(frozen=True, slots=True)
class Texts:
    """The readings of a body as text."""

    pieces: Sequence[bytes]

    def __call__(self, index: int) -> str:
        """Return one reading."""
        return self.pieces[index].decode(errors="replace")


def by_column(spec: StreamSpec) -> StreamSpec:
    """Return a stream with http as formats without paths have it: by the names of columns."""
    key = spec.key.column
    column = None if key is None else name_of_column(key)
    columns = tuple(map(name_of_column, spec.key.columns))
    return replace(
        spec,
        key=replace(spec.key, column=column, columns=columns),
        time=replace(spec.time, columns=tuple(map(name_of_column, spec.time.columns))),
        fields=tuple(replace(each, source=name_of_column(each.source)) for each in spec.fields),
    )


def check_number(readings: int) -> None:
    """Refuse a body with too many readings."""
    if readings > READINGS_MAX:
        reason = f"the body has more than {READINGS_MAX} readings: send several bodies"
        raise UnusableBody(reason, 413)
