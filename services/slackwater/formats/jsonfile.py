"""Reads a file of JSON as columns of readings, in pieces of bounded size, with the place of each.

A file is one array of readings if its first character that is no blank is a bracket; otherwise each
line has a reading. A line that is not JSON is malformed alone. An array is divided at the commas
between its elements, without parsing them, so that an element that is not JSON is malformed alone,
too. One that does not end, goes on behind its end, or has an element above the bound of a message
is damaged: what comes before is read.

Each reading is parsed as a message of a topic is, and isolated if it crashes the parser. A message
that announces a watermark is malformed: a file has none but its times.

Rejected: a sequence of JSON values that may go over several lines. A line that is cut off, the
usual fault of a file that a crash has ended, would hide all lines after it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from slackwater.formats.csvtext import CsvSource
from slackwater.formats.guarded import GuardedReader
from slackwater.formats.json_text import MESSAGE_BYTES_MAX
from slackwater.formats.messages import Bad, Parsed, nothing
from slackwater.formats.pieces import PIECE_BYTES_DEFAULT, FilePiece, Guard, Malformed
from slackwater.model.deployment import StreamSpec
from slackwater.protocols.dpc.source.arrived import Arrived

JSON_ENDINGS: Final = (".json", ".ndjson", ".jsonl")
"""The ends of a file's name by which it is read as JSON; `.gz` may follow."""
NO_WATERMARK: Final = "boundary: messages of topics only"
_BLANK: Final = b" \t\r\n"
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|["\[\]{},]', re.DOTALL)
"""A complete string, or a sign that divides."""


def is_json(path: Path) -> bool:
    """Whether a file is read as JSON."""
    return path.name.removesuffix(".gz").endswith(JSON_ENDINGS)


@dataclass(frozen=True, slots=True)
class JsonTexts:
    """The texts of some places of a file that have content; ``end``: after the last place."""

    numbers: Sequence[int]
    texts: Sequence[bytes]
    blank: int
    end: int

    def text(self, line: int) -> str:
        """Return the text at a place."""
        return self.texts[bisect_left(self.numbers, line)].decode(errors="replace")


class JsonPlaces:
    """Divides a file into lines or elements, without parsing them."""

    def __init__(self, stream: str, path: Path, piece_bytes: int = PIECE_BYTES_DEFAULT) -> None:
        """Open a file; ``DeploymentError`` if it cannot be read."""
        self._source = CsvSource(stream, path)
        self._piece_bytes = piece_bytes
        self.is_array = self._begins_with_bracket()

    def __iter__(self) -> Iterator[JsonTexts]:
        """Yield the whole file; ``DeploymentError`` behind all that comes before a damage."""
        blocks = self._source.unaligned_blocks(self._piece_bytes)
        return self._elements(blocks) if self.is_array else _lines(blocks)

    def _begins_with_bracket(self) -> bool:
        for block in self._source.unaligned_blocks(self._piece_bytes):
            if begin := block.lstrip(_BLANK):
                return begin.startswith(b"[")
        return False

    def _elements(self, blocks: Iterator[bytes]) -> Iterator[JsonTexts]:
        """Yield the elements of an array; ``data`` begins with the first that is not complete."""
        data, at, depth, number, is_over = b"", 0, 0, 1, False
        for block in blocks:
            data += block
            found: list[bytes] = []
            begin = 0
            for token in _TOKEN.finditer(data, at):
                sign, at = token[0], token.start()
                if is_over or sign == b'"':  # it goes on behind the array, or in the next block
                    break
                at = token.end()
                if sign in (b"[", b"{"):
                    depth += 1
                    begin = at if depth == 1 else begin
                elif sign in (b"]", b"}"):
                    depth -= 1
                    is_over = depth == 0
                if is_over or (sign == b"," and depth == 1):
                    found.append(data[begin : token.start()])
                    begin = at
            else:
                at = len(data)
            data, at = data[begin:], at - begin
            if is_over and number == 1 and len(found) == 1 and not found[0].strip(_BLANK):
                found = []  # an empty array
            lengths = [*map(len, found), len(data) if not is_over else 0]
            complete = next(
                (i for i, n in enumerate(lengths) if n > MESSAGE_BYTES_MAX), len(lengths)
            )
            texts = [text.strip(_BLANK) for text in found[:complete]]
            numbers = range(number, number + len(texts))
            number = numbers.stop
            if texts:
                yield JsonTexts(numbers, texts, 0, number)
            if complete < len(lengths):
                raise self._source.error(
                    f"is damaged: element {number} of its array has more than"
                    f" {MESSAGE_BYTES_MAX} bytes"
                )
            if is_over and data.strip(_BLANK):
                raise self._source.error(
                    "goes on behind the end of its array: a file has one array, or a reading in"
                    " each line"
                )
        if not is_over:
            raise self._source.error(
                f"is damaged: its array does not end, after element {number - 1}"
            )


class JsonFile:
    """A file of JSON, opened according to a stream's declaration."""

    def __init__(
        self,
        spec: StreamSpec,
        path: Path,
        piece_bytes: int = PIECE_BYTES_DEFAULT,
        guard: Guard | None = None,
    ) -> None:
        self.spec, self.path = spec, path
        self._places = JsonPlaces(spec.name, path, piece_bytes)
        dead_letters, self._where = guard or (None, "")
        self._reader = GuardedReader(spec, dead_letters)

    def verify(self) -> None:
        """Read an array or an archive to its end; ``DeploymentError`` if it is damaged."""
        if self._places.is_array or self.path.suffix == ".gz":
            for _ in self._places:
                pass

    def pieces(self) -> Iterator[FilePiece]:
        """Yield the whole file in pieces of bounded size."""
        return map(self._piece, self._places)

    def _piece(self, places: JsonTexts) -> FilePiece:
        numbers = np.array(places.numbers, np.int64)
        parsed = nothing(len(self.spec.fields))
        if len(numbers):
            parsed = self._reader.parse(self._where, numbers, places.texts)
        lines = numbers[parsed.indices]
        arrived = Arrived(
            parsed.stimes, parsed.key_index, parsed.keys, parsed.values, lines + 1, places.end
        )
        return FilePiece(arrived, lines, _malformed(parsed, places), places.blank, places)


def _lines(blocks: Iterator[bytes]) -> Iterator[JsonTexts]:
    """Yield the lines; only the beginning of a line that is longer than a message."""
    number, kept, more = 1, b"", True
    while more:
        block = next(blocks, None)
        more = block is not None
        *lines, kept = (kept + block).split(b"\n") if block is not None else (kept, b"")
        kept = kept[: MESSAGE_BYTES_MAX + 1]
        texts = [line if len(line) > MESSAGE_BYTES_MAX else line.strip(_BLANK) for line in lines]
        if not texts or (not more and not texts[0]):
            continue  # the line goes on, or the file ends with its last line
        numbers = [n for n, text in enumerate(texts, number) if text]
        number += len(texts)
        yield JsonTexts(numbers, [t for t in texts if t], len(texts) - len(numbers), number)


def _malformed(parsed: Parsed, places: JsonTexts) -> tuple[Malformed, ...]:
    bad = [*parsed.bad, *(Bad(at, NO_WATERMARK, None) for at, _ in parsed.boundaries)]
    return tuple(
        Malformed(
            places.numbers[one.index],
            places.texts[one.index][:MESSAGE_BYTES_MAX].decode(errors="replace"),
            one.detail,
            one.stime,
            one.reason,
        )
        for one in sorted(bad, key=lambda one: one.index)
    )
