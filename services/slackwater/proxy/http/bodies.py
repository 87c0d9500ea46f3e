"""Formats of request bodies: bytes to columns of readings.

Each reader accepts any bytes. A malformed reading is refused alone, by its index or line; a body
that cannot be divided into readings raises ``UnusableBody`` with the place of the first error.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from slackwater.formats.json_input import JsonReader
from slackwater.formats.json_text import Unreadable, load, with_usual_constants
from slackwater.model.deployment import StreamSpec
from slackwater.proxy.http import senml
from slackwater.proxy.http.parts import Texts, check_number
from slackwater.proxy.http.tables import ARROW, CSV, read_arrow, read_csv
from slackwater.proxy.requests import BodyContent, BodyReader, UnusableBody
from slackwater.proxy.skipped import with_counter

JSON: Final = "application/json"
NDJSON: Final = ("application/x-ndjson", "application/ndjson", "application/jsonl")
_SPACED: Final = (b"}, {", b"},\n{", b"},\r\n{")
"""Common separators of two elements, besides a single comma."""
_BLANK: Final = b" \t\r\n"


def reader_for(spec: StreamSpec, content_type: str, now_us: int) -> BodyReader | None:
    """Return the reader for bodies of this media type arriving now; None if it is unsupported.

    With a counter readings are parsed ``with_counter``.
    """
    spec = with_counter(spec)
    if content_type == senml.MEDIA_TYPE:
        return partial(senml.read_senml, spec, now_us)
    reader = _READERS.get(content_type)
    return None if reader is None else partial(reader, spec)


def read_json(spec: StreamSpec, body: bytes) -> BodyContent:
    """Parse one reading, or an array of readings."""
    body = body.strip(_BLANK)
    if not body.startswith(b"["):
        return _content(JsonReader(spec), [body])
    reader = JsonReader(spec)
    pieces = _divided(body)
    if pieces is not None:
        content = _content(reader, pieces)
        if not any(map(_is_no_object, (pieces[bad.index] for bad in content.parsed.bad))):
            return content
    return _content(reader, _elements(body))


def read_lines(spec: StreamSpec, body: bytes) -> BodyContent:
    """Parse one reading per line; blank lines are skipped."""
    numbers: list[int] = []
    pieces: list[bytes] = []
    # Not split at once: the lines of a body would take forty times its size in memory.
    for number, line in enumerate(io.BytesIO(body), 1):
        if piece := line.strip(_BLANK):
            numbers.append(number)
            pieces.append(piece)
            check_number(len(pieces))
    return BodyContent(JsonReader(spec).parse(pieces), Texts(pieces), numbers, "line")


def _content(reader: JsonReader, pieces: Sequence[bytes]) -> BodyContent:
    return BodyContent(reader.parse(pieces), Texts(pieces), range(len(pieces)))


def _divided(body: bytes) -> list[bytes] | None:
    """Divide an array by text search at each sequence of ``}``, a comma and ``{``.

    Strings may contain the same three bytes. The division is correct if each piece is an object by
    itself: the pieces joined by commas are then the array.
    """
    inner = body[1:-1].strip(_BLANK)
    if not body.endswith(b"]") or not inner.startswith(b"{") or not inner.endswith(b"}"):
        return None
    for between in _SPACED:
        if between in inner:
            inner = inner.replace(between, b"},{")
    check_number(inner.count(b"},{") + 1)
    pieces = inner[1:-1].split(b"},{")
    return [b"{%b}" % piece for piece in pieces]


def _is_no_object(piece: bytes) -> bool:
    try:
        load(piece)
    except Unreadable:
        return True
    return False


def _elements(body: bytes) -> list[bytes]:
    """Divide an array by its grammar, element by element."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise UnusableBody(f"the body is not UTF-8 at byte {error.start}") from None
    text = with_usual_constants(text)
    # Numbers remain text: Python refuses integers of many digits, even in unused fields.
    scan = json.JSONDecoder(parse_int=str, parse_float=str).raw_decode
    pieces: list[bytes] = []
    at = _after_blanks(text, 1)
    if text[at : at + 1] == "]" and at + 1 == len(text):
        return pieces
    while True:
        try:
            _, end = scan(text, at)
        except (ValueError, RecursionError):
            raise _not_json(len(pieces), at) from None
        pieces.append(text[at:end].encode(errors="replace"))
        check_number(len(pieces))
        end = _after_blanks(text, end)
        if text[end : end + 1] == "]" and end + 1 == len(text):
            return pieces
        if text[end : end + 1] != ",":
            raise _not_json(len(pieces), end)
        at = _after_blanks(text, end + 1)


def _after_blanks(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in " \t\r\n":
        at += 1
    return at


def _not_json(elements: int, at: int) -> UnusableBody:
    return UnusableBody(
        f"the body is not a JSON array: invalid at character {at + 1}, in element {elements}"
        " (counted from 0); nothing was stored"
    )


_READERS: Final[Mapping[str, Callable[[StreamSpec, bytes], BodyContent]]] = {
    JSON: read_json,
    **dict.fromkeys(NDJSON, read_lines),
    CSV: read_csv,
    ARROW: read_arrow,
}
MEDIA_TYPES: Final = (JSON, NDJSON[0], senml.MEDIA_TYPE, CSV, ARROW)
"""The media types that an error message lists."""
