"""JSON from strangers: an object whose numbers are still text, within bounds, or one reason.

``load`` is the definition, one message at a time. Any bytes give an object or ``Unreadable``: the
size of a message and its depth are bounded, and a number is kept as its text until a field asks for
it, so that one of a million digits in a field that nobody reads costs nothing.

``are_objects`` looks at a joined batch, at the speed of memory: where it says yes, pyarrow may read
it, and ``load`` would find no fault that pyarrow does not. A batch that it refuses is read more
slowly, and no worse.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from slackwater.proxy.columns import NUMBER_CHARS_MAX

MESSAGE_BYTES_MAX: Final = 1024 * 1024
NESTING_DEPTH_MAX: Final = 64
"""The message itself is the first level. Python's parser ends where its own stack does."""

_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)

_SHALLOW_BYTES_MAX: Final = 5 * NESTING_DEPTH_MAX
"""A level of objects takes five bytes: a brace, an empty name, a colon, a brace."""
_NUMBER_SAMPLES: Final = 16
_NUMBER_BYTES: Final = np.isin(np.arange(256), np.frombuffer(b"0123456789.+-eE", np.uint8))

_CONSTANT: Final = re.compile(rb"[:,\[\s][+-]?(?:NaN|Inf(?:inity)?)\s*[,\]}]")

_RUN_CHARS_MAX: Final = 19
"""Of more a mantissa has too many, and they are not counted further."""
_DIGITS: Final = np.isin(np.arange(256), np.frombuffer(b"0123456789", np.uint8))
_MANTISSA: Final = np.isin(np.arange(256), np.frombuffer(b"0123456789.", np.uint8))
_SIGNS: Final = np.isin(np.arange(256), np.frombuffer(b"+-", np.uint8))
_BEHIND_A_NUMBER: Final = np.isin(np.arange(256), np.frombuffer(b" \t\n\r\f\v,]}", np.uint8))
_DIGITS_TO_END: Final = re.compile(rb"[0-9]*[\s,\]}]")
_QUOTED: Final = re.compile(rb'"[+-]?[0-9.]+[eE][+-]?[0-9]+"')
"""A text where a decimal is expected is read as one, and a time as text has no exponent."""
_BLOCK_BYTES: Final = 64 * 1024
"""Passes over so much stay in the processor's cache."""
_CASE: Final = 0x20
"""The bit that tells ``e`` from ``E``, and ``{`` from ``[``."""

Bytes = npt.NDArray[np.uint8]


class JsonNumber(str):
    """The text of a JSON number."""

    __slots__ = ()


class Unreadable(Exception):
    """Why a message is no object of JSON."""


def load(message: bytes) -> dict[str, Any]:
    """The object that a message is, its numbers as text; ``Unreadable`` if it is none."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise Unreadable(f"longer than {MESSAGE_BYTES_MAX} bytes")
    if _is_deeper(message):
        raise Unreadable(f"nested deeper than {NESTING_DEPTH_MAX}")
    try:
        data = json.loads(
            message.decode(),
            parse_float=JsonNumber,
            parse_int=JsonNumber,
            parse_constant=_no_constant,
        )
    except UnicodeDecodeError:
        raise Unreadable("not UTF-8") from None
    except ValueError:
        raise Unreadable("not JSON") from None
    if isinstance(data, list):
        raise Unreadable("an array: each reading is a message of its own")
    if not isinstance(data, dict):
        raise Unreadable("not an object")
    return data


def _is_deeper(message: bytes) -> bool:
    if message.count(b"[") + message.count(b"{") <= NESTING_DEPTH_MAX:
        return False
    bare = np.frombuffer(_STRING.sub(b"", message), np.uint8)
    opens = (bare == ord("[")) | (bare == ord("{"))
    closes = (bare == ord("]")) | (bare == ord("}"))
    depth = np.cumsum(opens.astype(np.int64) - closes)
    return int(depth.max(initial=0)) > NESTING_DEPTH_MAX


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# Many messages at once.


def are_objects(joined: bytes, n: int) -> bool:
    """Are ``joined`` n texts from brace to brace, an end of line between them and none within?

    And does each keep the bounds? False also where that is not certain.
    """
    if joined[:1] != b"{" or joined[-1:] != b"}" or b"\0" in joined:
        return False  # NUL is for pyarrow the end of all
    raw = np.frombuffer(joined, np.uint8)
    ends = _places(raw, ord("\n"))
    if len(ends) != n - 1 or (raw[ends - 1] != ord("}")).any() or (raw[ends + 1] != ord("{")).any():
        return False
    longest = int(np.diff(ends, prepend=-1, append=len(joined)).max()) - 1
    if longest > MESSAGE_BYTES_MAX:
        return False
    if (longest > _SHALLOW_BYTES_MAX or b"[" in joined) and _opens_much(raw, longest):
        return False
    if not joined.isascii() and not _is_text(joined):
        return False
    return not _has_constant(joined) and not has_long_number(joined, NUMBER_CHARS_MAX)


def _opens_much(raw: Bytes, longest: int) -> bool:
    """Does a message open more than the depth that is allowed, one in another or not?"""
    opens = _places(raw, ord("{"), _CASE)
    # So many and one more of neighbours, in no more bytes than a message has.
    near = opens[NESTING_DEPTH_MAX:] - opens[:-NESTING_DEPTH_MAX] < longest
    if not near.any():
        return False
    ends = _places(raw, ord("\n"))
    firsts, lasts = opens[:-NESTING_DEPTH_MAX][near], opens[NESTING_DEPTH_MAX:][near]
    return bool((np.searchsorted(ends, firsts) == np.searchsorted(ends, lasts)).any())


def _places(raw: Bytes, letter: int, bits: int = 0) -> npt.NDArray[np.intp]:
    """Where a letter stands, or another one that becomes it with these bits."""
    found = []
    for start in range(0, len(raw), _BLOCK_BYTES):
        block = raw[start : start + _BLOCK_BYTES]
        found.append(np.flatnonzero((block | bits if bits else block) == letter) + start)
    return np.concatenate(found) if len(found) != 1 else found[0]


def _has_constant(joined: bytes) -> bool:
    """NaN and Infinity, which are no JSON: pyarrow passes over them where nobody looks."""
    candidate = (b"N" in joined and b"NaN" in joined) or (b"I" in joined and b"Inf" in joined)
    return candidate and _CONSTANT.search(joined) is not None


def _is_text(joined: bytes) -> bool:
    try:
        joined.decode()
    except UnicodeDecodeError:
        return False
    return True


def has_long_number(joined: bytes, chars_max: int) -> bool:
    """Do so many bytes of a number, and one more, stand one after another, in a text or not?

    A sample of the bytes shows where they do not: so long a run has sixteen of it.
    """
    samples = np.frombuffer(joined, np.uint8)[:: chars_max // _NUMBER_SAMPLES]
    others = np.flatnonzero(~_NUMBER_BYTES[samples])
    run = int(np.diff(others, prepend=-1, append=len(samples)).max()) - 1
    if run < _NUMBER_SAMPLES:
        return False
    return re.search(rb"[0-9.+\-eE]{%d}" % (chars_max + 1), joined) is not None


def has_large_exponent(joined: bytes) -> bool:
    """Is there a number that pyarrow cannot be asked to read as a decimal?

    It moves the point by a table of 38 places, and reads beyond its end: memory that is not its
    own. Without an exponent it counts the digits first.
    """
    raw = np.frombuffer(joined, np.uint8)
    at = _exponents(raw)
    if not len(at):
        return False
    first = at + 1 + _SIGNS[raw[at + 1]]
    behind = _run(raw, first, 1, _DIGITS)
    digits = behind - first
    # Beyond 9, or below -19.
    two = (digits == 2) & ((raw[at + 1] != ord("-")) | (raw[first] >= ord("2")))
    large = ((digits > 2) | two) & _BEHIND_A_NUMBER[raw[behind]]
    before = _run(raw, at - 1, -1, _MANTISSA)
    if large.any() or (at - 1 - before == _RUN_CHARS_MAX).any():
        return True
    quotes = before - _SIGNS[raw[before]]
    quotes = quotes[raw[quotes] == ord('"')]
    # What is left are few: texts that begin with a number, and very long numbers.
    return any(_QUOTED.match(joined, quote) for quote in quotes.tolist()) or any(
        _DIGITS_TO_END.match(joined, end) for end in behind[digits == _RUN_CHARS_MAX].tolist()
    )


def _exponents(raw: Bytes) -> npt.NDArray[np.intp]:
    """Where an ``e`` stands between a digit and a digit or a sign."""
    found = []
    for start in range(1, len(raw) - 1, _BLOCK_BYTES):
        block = raw[start - 1 : start + _BLOCK_BYTES]
        is_one = (block[1:] | _CASE) == ord("e")
        is_one &= (block[:-1] - np.uint8(ord("0"))) < 10
        found.append(np.flatnonzero(is_one) + start)
    at = np.concatenate(found) if found else np.empty(0, np.intp)
    return at[(_DIGITS | _SIGNS)[raw[at + 1]]]


def _run(
    raw: Bytes, begin: npt.NDArray[np.intp], step: int, members: npt.NDArray[np.bool_]
) -> npt.NDArray[np.intp]:
    """Where runs of these bytes that begin at these places end; no further than is counted.

    The first and the last byte of all are braces, so each run ends.
    """
    ends, on = begin.copy(), np.arange(len(begin))
    for _ in range(_RUN_CHARS_MAX):
        on = on[members[raw[ends[on]]]]
        if not len(on):
            break
        ends[on] += step
    return ends
