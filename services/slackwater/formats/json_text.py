"""Bounded parsing of untrusted JSON: an object whose numbers are still text, or one error.

``load`` is the definition, one message at a time. Any bytes give an object or ``Unreadable``: size
and depth are bounded, and a number stays text until a field uses it, so a number of a million
digits in an unused field costs nothing.

``are_objects`` checks a joined batch at memory speed. If it returns True, pyarrow may parse the
batch, and ``load`` would find no error that pyarrow does not find. A batch it refuses is parsed
more slowly with the same result.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from slackwater.formats.columns import NUMBER_CHARS_MAX
from slackwater.formats.encodings import encoding_fault
from slackwater.formats.repeated import RepeatedMember, object_of

MESSAGE_BYTES_MAX: Final = 1024 * 1024
NESTING_DEPTH_MAX: Final = 64
"""Maximum depth; the message itself is level one. Python's parser is bounded by its stack only."""

REGISTRY_HEADER_BYTES: Final = 5
"""Size of Confluent's wire format: a zero byte, and the schema's id."""
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)

_STRING_OR_CONSTANT: Final = re.compile(
    r'"(?:[^"\\]|\\.)*+"|(?<![\w.+-])(?P<sign>-?)(?P<word>nan|inf(?:inity)?)(?![\w.+-])',
    re.DOTALL | re.IGNORECASE | re.ASCII,
)

_SHALLOW_BYTES_MAX: Final = 5 * NESTING_DEPTH_MAX
"""An object level takes five bytes: a brace, an empty name, a colon, a brace."""
_NUMBER_SAMPLES: Final = 16
_NUMBER_BYTES: Final = np.isin(np.arange(256), np.frombuffer(b"0123456789.+-eE", np.uint8))

_CONSTANT: Final = re.compile(rb"[:,\[\s][+-]?(?:NaN|Inf(?:inity)?)\s*[,\]}]")

_RUN_CHARS_MAX: Final = 19
"""Maximum run length that is counted; a mantissa of more digits is too long."""
_DIGITS: Final = np.isin(np.arange(256), np.frombuffer(b"0123456789", np.uint8))
_MANTISSA: Final = np.isin(np.arange(256), np.frombuffer(b"0123456789.", np.uint8))
_SIGNS: Final = np.isin(np.arange(256), np.frombuffer(b"+-", np.uint8))
_BEHIND_A_NUMBER: Final = np.isin(np.arange(256), np.frombuffer(b" \t\n\r\f\v,]}", np.uint8))
_DIGITS_TO_END: Final = re.compile(rb"[0-9]*[\s,\]}]")
_QUOTED: Final = re.compile(rb'"[+-]?[0-9.]+[eE][+-]?[0-9]+"')
"""A decimal with exponent in a string; pyarrow parses it, the definition allows none in a time."""
_BLOCK_BYTES: Final = 64 * 1024
"""Block size of passes over the data, so that a block stays in the processor's cache."""
_CASE: Final = 0x20
"""The bit that distinguishes ``e`` from ``E``, and ``{`` from ``[``."""

Bytes = npt.NDArray[np.uint8]


class JsonNumber(str):
    """The text of a JSON number."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class NotFinite:
    """``NaN`` or ``Infinity``: no JSON, but written by many encoders. A missing value."""

    text: str


class Unreadable(Exception):
    """Why a message is not a JSON object."""


def load(message: bytes) -> dict[str, Any]:
    """Parse a message into an object with numbers as text; ``Unreadable`` if it is not one."""
    data = load_value(message)
    if isinstance(data, list):
        raise Unreadable("an array: each reading is a message of its own")
    if not isinstance(data, dict):
        raise Unreadable("not an object")
    return data


def load_value(message: bytes, depth_max: int = NESTING_DEPTH_MAX) -> Any:
    """Parse a message into any value with numbers as text; ``Unreadable`` if it is not JSON.

    The value of a repeated member is a ``RepeatedMember``.
    """
    if len(message) > MESSAGE_BYTES_MAX:
        raise Unreadable(f"longer than {MESSAGE_BYTES_MAX} bytes")
    given, message = message, without_header(message)
    if _is_deeper(message, depth_max):
        raise Unreadable(f"nested deeper than {NESTING_DEPTH_MAX}")
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise Unreadable(encoding_fault(message, given) or "not UTF-8") from None
    for is_usual in (True, False):
        try:
            return json.loads(
                text if is_usual else with_usual_constants(text),
                parse_float=JsonNumber,
                parse_int=JsonNumber,
                parse_constant=NotFinite,
                object_pairs_hook=object_of,
            )
        except ValueError:
            pass
    raise Unreadable(encoding_fault(message, given) or "not JSON")


def without_header(message: bytes) -> bytes:
    """Return the JSON of a message that begins with a schema registry's header.

    The header is a zero byte and an id in four bytes. No JSON begins with a zero byte.
    """
    return message[REGISTRY_HEADER_BYTES:] if message[:1] == b"\0" else message


def with_usual_constants(text: str) -> str:
    """Return the text with ``nan``, ``-inf`` and the like as Python's ``json`` writes them.

    Strings are not changed. Before it ``json`` reads ``NaN``, ``Infinity`` and ``-Infinity`` only.
    """
    return _STRING_OR_CONSTANT.sub(_usual_constant, text)


def _usual_constant(found: re.Match[str]) -> str:
    if found["word"] is None:
        return found[0]
    return f"{found['sign']}Infinity" if found["word"][0] in "iI" else "NaN"


def dump_value(value: Any) -> str:
    """Return a value of ``load_value`` as JSON text, its numbers as they were written."""
    if isinstance(value, JsonNumber):
        return str(value)
    if isinstance(value, str):
        return encode_basestring_ascii(value)  # json.dumps takes ten times as long for a text
    if isinstance(value, NotFinite):
        return value.text
    if isinstance(value, dict):
        pairs = []
        for name, inner in value.items():
            quoted = encode_basestring_ascii(name)
            if isinstance(inner, JsonNumber):
                pairs.append(f"{quoted}: {inner}")
            elif isinstance(inner, RepeatedMember):
                pairs += [f"{quoted}: {dump_value(one)}" for one in inner.values]
            else:
                pairs.append(f"{quoted}: {dump_value(inner)}")
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(dump_value, value)) + "]"
    return json.dumps(value)


def _is_deeper(message: bytes, depth_max: int) -> bool:
    if message.count(b"[") + message.count(b"{") <= depth_max:
        return False
    bare = np.frombuffer(_STRING.sub(b"", message), np.uint8)
    opens = (bare == ord("[")) | (bare == ord("{"))
    closes = (bare == ord("]")) | (bare == ord("}"))
    depth = np.cumsum(opens.astype(np.int64) - closes)
    return int(depth.max(initial=0)) > depth_max


# Many messages at once.


def are_objects(joined: bytes, n: int) -> bool:
    """Whether ``joined`` is n texts in braces, separated by line ends and containing none.

    Each must also be within the bounds. False also where this is uncertain.
    """
    if joined[:1] != b"{" or joined[-1:] != b"}" or b"\0" in joined:
        return False  # pyarrow treats NUL as the end of the input
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
    """Whether a message may exceed the maximum depth; all opening brackets count, nested or not."""
    opens = _places(raw, ord("{"), _CASE)
    # Opening brackets, one more than allowed, within the length of a message.
    near = opens[NESTING_DEPTH_MAX:] - opens[:-NESTING_DEPTH_MAX] < longest
    if not near.any():
        return False
    ends = _places(raw, ord("\n"))
    firsts, lasts = opens[:-NESTING_DEPTH_MAX][near], opens[NESTING_DEPTH_MAX:][near]
    return bool((np.searchsorted(ends, firsts) == np.searchsorted(ends, lasts)).any())


def _places(raw: Bytes, letter: int, bits: int = 0) -> npt.NDArray[np.intp]:
    """Return the places of a letter, or of bytes equal to it after setting ``bits``."""
    found = []
    for start in range(0, len(raw), _BLOCK_BYTES):
        block = raw[start : start + _BLOCK_BYTES]
        found.append(np.flatnonzero((block | bits if bits else block) == letter) + start)
    return np.concatenate(found) if len(found) != 1 else found[0]


def _has_constant(joined: bytes) -> bool:
    """Whether NaN or Infinity occurs, which pyarrow reads as numbers and does not count."""
    candidate = (b"N" in joined and b"NaN" in joined) or (b"I" in joined and b"Inf" in joined)
    return candidate and _CONSTANT.search(joined) is not None


def _is_text(joined: bytes) -> bool:
    try:
        joined.decode()
    except UnicodeDecodeError:
        return False
    return True


def has_long_number(joined: bytes, chars_max: int) -> bool:
    """Whether more than ``chars_max`` consecutive bytes of a number occur, also in strings.

    A sample of the bytes excludes most batches: a run that long contains sixteen sampled bytes.
    """
    samples = np.frombuffer(joined, np.uint8)[:: chars_max // _NUMBER_SAMPLES]
    others = np.flatnonzero(~_NUMBER_BYTES[samples])
    run = int(np.diff(others, prepend=-1, append=len(samples)).max()) - 1
    if run < _NUMBER_SAMPLES or _has_near_commas(joined, chars_max):
        return False
    return re.search(rb"[0-9.+\-eE]{%d}" % (chars_max + 1), joined) is not None


def _has_near_commas(joined: bytes, chars_max: int) -> bool:
    """Whether a comma is in each run of so many bytes, as in arrays of numbers."""
    commas = _places(np.frombuffer(joined, np.uint8), ord(","))
    return int(np.diff(commas, prepend=-1, append=len(joined)).max()) <= chars_max


def has_large_exponent(joined: bytes) -> bool:
    """Whether an exponent is too large for pyarrow's decimal parser.

    The parser shifts the point by a table of 38 entries and reads out of bounds beyond it. Without
    an exponent it checks the number of digits first.
    """
    raw = np.frombuffer(joined, np.uint8)
    at = _exponents(raw)
    if not len(at):
        return False
    first = at + 1 + _SIGNS[raw[at + 1]]
    behind = _run(raw, first, 1, _DIGITS)
    digits = behind - first
    # Exponents beyond 9, or below -19.
    two = (digits == 2) & ((raw[at + 1] != ord("-")) | (raw[first] >= ord("2")))
    large = ((digits > 2) | two) & _BEHIND_A_NUMBER[raw[behind]]
    before = _run(raw, at - 1, -1, _MANTISSA)
    if large.any() or (at - 1 - before == _RUN_CHARS_MAX).any():
        return True
    quotes = before - _SIGNS[raw[before]]
    quotes = quotes[raw[quotes] == ord('"')]
    # The rest are few: strings that begin with a number, and very long numbers.
    return any(_QUOTED.match(joined, quote) for quote in quotes.tolist()) or any(
        _DIGITS_TO_END.match(joined, end) for end in behind[digits == _RUN_CHARS_MAX].tolist()
    )


def _exponents(raw: Bytes) -> npt.NDArray[np.intp]:
    """Return the places of each ``e`` between a digit and a digit or sign."""
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
    """Return where runs of these bytes end, counted up to the maximum run length.

    The first and last bytes of the input are braces, so each run ends.
    """
    ends, on = begin.copy(), np.arange(len(begin))
    for _ in range(_RUN_CHARS_MAX):
        on = on[members[raw[ends[on]]]]
        if not len(on):
            break
        ends[on] += step
    return ends
