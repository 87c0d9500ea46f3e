"""Records of quarantine: one reading that was refused, or many of one reason as columns.

Users and their tools read these as JSON. A record of one reading is an *entry*: ``stream``,
``position``, perhaps ``incarnation``, ``reason``, ``stime``, ``key``, ``detail``, ``payload``,
``quarantined_at``. A device whose clock is wrong sends nothing but refused readings, as many in a
second as others send good ones. A record for each took 14 us of a proxy, most of it for objects:
the position, the text of the message, the JSON, and the producer's report. So readings that are
refused together for one reason are one record. It has ``columns``, a list of each member that
differs, and the other members once; ``entries_in`` makes entries of both.

Rejected: a record for each reading whose JSON is built in columns. Kafka's client alone takes 0.8
us for each record and reports each delivery, and the topic has 310 bytes for each reading, not 130.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import orjson

from slackwater.model.records import type_i64

PAYLOAD_CHARS_MAX: Final = 4096
DETAIL_CHARS_MAX: Final = 1024
KEY_SHOWN_CHARS_MAX: Final = 1024
READINGS_MAX: Final = 4_096
"""Maximum readings of a record."""
CHARS_MAX: Final = 256 * 1024
"""Maximum characters of the keys and payloads of a record of several readings."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US_MIN: Final = -62_135_596_800_000_000
_US_MAX: Final = 253_402_300_799_999_999
"""The calendar's years, 1 to 9999."""


@dataclass(frozen=True, slots=True)
class RefusedColumns:
    """Readings that were refused together for one reason; ``details``: empty if none has any."""

    reason: str
    positions: Sequence[str]
    stimes: type_i64
    keys: Sequence[str]
    payloads: Sequence[str]
    details: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.positions)


def iso(us: int) -> str:
    """Format an event or wall time for JSON."""
    try:
        text = (_EPOCH + timedelta(microseconds=us)).isoformat(timespec="microseconds")
    except OverflowError:
        return f"{us}us"
    return text.replace("+00:00", "Z")


def encode_columns(
    stream: str, refused: RefusedColumns, now_us: int, incarnation: int | None = None
) -> Iterator[tuple[str, bytes]]:
    """Yield records of the readings, with the position of the first of each."""
    same = {
        "stream": stream,
        **({} if incarnation is None else {"incarnation": incarnation}),
        "reason": refused.reason,
        "quarantined_at": iso(now_us),
    }
    payloads = _texts(refused.payloads, PAYLOAD_CHARS_MAX)
    keys = _texts(refused.keys, KEY_SHOWN_CHARS_MAX)
    stimes = _times(refused.stimes)
    sizes = np.fromiter(map(len, payloads), np.int64, len(payloads))
    sizes += np.fromiter(map(len, keys), np.int64, len(keys))
    ends, start = np.cumsum(sizes), 0
    while start < len(refused):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + CHARS_MAX, "right"))
        stop = min(max(stop, start + 1), start + READINGS_MAX)
        part = slice(start, stop)
        columns: dict[str, Any] = {
            "position": refused.positions[part],
            "stime": stimes[part],
            "key": keys[part],
            "payload": payloads[part],
        }
        if refused.details:
            columns["detail"] = _texts(refused.details[part], DETAIL_CHARS_MAX)
        yield refused.positions[start], orjson.dumps({**same, "columns": columns})
        start = stop


def entries_in(value: bytes | None) -> list[dict[str, Any]]:
    """Return the entries of a record, one for each reading.

    Raises:
        ValueError: it is no record of quarantine; everyone who may write to the topic may write it.
    """
    record = orjson.loads(value or b"")
    if not isinstance(record, dict):
        raise ValueError("not an object")
    columns = record.pop("columns", None)
    if columns is None:
        return [record]
    if not isinstance(columns, dict) or not all(isinstance(of, list) for of in columns.values()):
        raise ValueError("columns that are no lists")
    rows = zip(*columns.values(), strict=True)
    return [{"detail": "", **record, **dict(zip(columns, row, strict=True))} for row in rows]


def _texts(texts: Sequence[str], chars_max: int) -> Sequence[str]:
    """Return texts that can be written: valid UTF-8, truncated to the maximum length."""
    if max(map(len, texts), default=0) <= chars_max and _is_utf8("".join(texts)):
        return texts
    return [valid_text(text, chars_max) for text in texts]


def _is_utf8(text: str) -> bool:
    """Whether a text has no half of a surrogate pair, as JSON may have escaped one."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def valid_text(text: str, chars_max: int) -> str:
    """Return a text that can be written: valid UTF-8, truncated to the maximum length."""
    return text[:chars_max].encode(errors="replace").decode()


def _times(times: type_i64) -> list[str]:
    """Apply ``iso`` to each time, vectorised for most of them."""
    if not len(times) or int(times.min()) < _US_MIN or int(times.max()) > _US_MAX:
        return [iso(us) for us in times.tolist()]
    # Neighbours have the same second: it is formatted once. numpy takes 600 ns for each time.
    seconds, rest = np.divmod(times, 1_000_000)
    different, places = np.unique(seconds, return_inverse=True)
    starts = [iso(second * 1_000_000)[:-7] for second in different.tolist()]
    pairs = zip(places.tolist(), rest.tolist(), strict=True)
    return [f"{starts[place]}{us:06d}Z" for place, us in pairs]
