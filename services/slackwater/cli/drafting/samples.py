"""Samples of readings as tables of texts: from CSV files, from JSON in files or messages.

A sample has names as a deployment file would have them: columns, or paths of members. The values
are texts, since both kinds are guessed by the same rules. Of a CSV file the delimiter, the decimal
point and the lines above the header are found first.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from slackwater.formats.csvfile import CONVERT, REPLACED
from slackwater.formats.json_text import with_usual_constants
from slackwater.model.errors import UsageError

DELIMITERS: Final = (";", "\t", "|", ",")
ROWS_MAX: Final = 2_000
"""Rows of a sample; spacing and disorder are measured over a complete file."""
NAMES_MAX: Final = 1_000
SKIP_LINES_MAX: Final = 1_000
_COMMA: Final = re.compile(r"[+-]?[0-9]+,[0-9]+", re.ASCII)
_POINT: Final = re.compile(r"[+-]?[0-9]+\.[0-9]+", re.ASCII)
_PLAIN: Final = re.compile(r"[^.\[\]\"]+")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a CSV file is written."""

    delimiter: str = ","
    decimal: str = "."
    skip_lines: int = 0


@dataclass(frozen=True, slots=True)
class ReadingSample:
    """Some readings: ``columns`` has the texts of each name, "" where a reading lacks it.

    ``format`` is csv, or that of a topic's messages. ``named_keys``: records have keys.
    """

    name: str
    origin: str
    columns: Mapping[str, Sequence[str]]
    format: str
    dialect: Dialect = Dialect()
    unreadable: int = 0
    topic: str | None = None
    named_keys: bool = False
    stamps_us: Sequence[int] = ()

    @property
    def rows(self) -> int:
        """The number of readings."""
        return max(map(len, self.columns.values()), default=len(self.stamps_us))


# CSV.


def csv_sample(name: str, origin: str, text: str) -> ReadingSample:
    """Return the sample of a CSV file; ``text`` is its beginning, in complete lines.

    Raises:
        UsageError: no line is a header above rows of the same width, or it is not UTF-8.
    """
    if not text.strip():
        raise UsageError(f"{origin}: is empty")
    found = [each for each in (_header(text, d) for d in DELIMITERS) if each is not None]
    if not found:
        raise UsageError(
            f"{origin}: no header above rows of cells was found; columns are separated by a comma,"
            " a semicolon, a tab or a bar"
        )
    # A decimal comma splits cells: of two delimiters that fit, the one with more rows is right.
    delimiter, skip, rows = max(found, key=lambda each: (len(each[2]), len(each[2][0])))
    header = [cell.strip() for cell in rows[0]]
    if any(REPLACED in heading for heading in header):
        raise UsageError(f"{origin}: its header is not UTF-8: {CONVERT}")
    cells = [row for row in rows[1:] if any(cell.strip() for cell in row)]
    columns: dict[str, list[str]] = {}
    for i, heading in enumerate(header[:NAMES_MAX]):
        if heading and header.count(heading) == 1:
            columns[heading] = [row[i].strip() if i < len(row) else "" for row in cells]
    decimal = "."
    if delimiter != ",":
        texts = [text for column in columns.values() for text in column]
        commas = sum(1 for text in texts if _COMMA.fullmatch(text))
        decimal = "," if commas > sum(1 for text in texts if _POINT.fullmatch(text)) else "."
    return ReadingSample(name, origin, columns, "csv", Dialect(delimiter, decimal, skip))


def _header(text: str, delimiter: str) -> tuple[str, int, list[list[str]]] | None:
    """Return delimiter, lines above the header, header and rows; None if this delimiter is wrong.

    The rows are the last ones of the sample that have one width; their header is the last of them
    in which no cell begins with a digit, since each reading has a time.
    """
    rows, begins, reader = [], [], csv.reader(text.splitlines(), delimiter=delimiter)
    try:
        at = 0
        for row in reader:
            rows.append(row)
            begins.append(at)
            at = reader.line_num
    except csv.Error:
        return None
    rows, begins = rows[: ROWS_MAX + SKIP_LINES_MAX], begins[: ROWS_MAX + SKIP_LINES_MAX]
    counts = Counter(len(row) for row in rows if any(cell.strip() for cell in row))
    counts.pop(1, None)
    if not counts:
        return None
    width = max(counts, key=lambda width: (counts[width], width))
    first = len(rows)
    while first and (_fits(rows[first - 1], width) or not any(rows[first - 1])):
        first -= 1
    block = [i for i in range(first, len(rows)) if any(rows[i])]
    found = [
        i
        for i, below in pairwise(block)
        if begins[i] <= SKIP_LINES_MAX
        and sum(1 for cell in rows[i] if cell.strip()) > 1
        and not any(map(_begins_with_digit, rows[i]))
        and any(map(_begins_with_digit, rows[below]))
    ]
    if not found:
        return None
    return delimiter, begins[found[-1]], [rows[j] for j in block if j >= found[-1]]


def _fits(row: Sequence[str], width: int) -> bool:
    """Whether a row has this width: an empty cell more, or up to two less, are allowed."""
    if len(row) == width + 1:
        return not row[-1].strip()
    return max(2, width - 2) <= len(row) <= width


def _begins_with_digit(cell: str) -> bool:
    """Whether a cell is a number or a time, and so none of a header."""
    return re.match(r"\s*[+-]?[.,]?[0-9]", cell) is not None


# JSON.


def json_values(texts: Sequence[bytes], origin: str) -> tuple[list[Any], int]:
    """Return the values of a file's lines or elements, and how many are unreadable.

    Raises:
        UsageError: none is JSON.
    """
    values, unreadable = [], 0
    for text in texts:
        try:
            values.append(json.loads(with_usual_constants(text.decode())))
        except ValueError:
            unreadable += 1
    if not values:
        raise UsageError(
            f"{origin}: no line of it is JSON: a file has a reading in each line, or is one array"
            " (`jq -c . FILE` writes an object in one line)"
        )
    return values, unreadable


def json_sample(
    name: str, origin: str, values: Iterable[Any], unreadable: int = 0
) -> ReadingSample:
    """Return the sample of parsed messages, or of the lines of a file.

    Raises:
        UsageError: they are no objects with numbers, or SenML.
    """
    objects: list[Mapping[str, Any]] = []
    formats: Counter[str] = Counter()
    for value in values:
        found, format_ = _objects(value)
        objects += found[: ROWS_MAX - len(objects)]
        formats[format_] += 1
    if any({"n", "v"} <= each.keys() or "bn" in each for each in objects):
        raise UsageError(
            f"{origin}: is SenML, which is posted: its stream is declared by hand, with http, as"
            " docs/examples/senml-pack.yaml has it"
        )
    if not objects and set(formats) != {"number"}:
        raise UsageError(f"{origin}: has no object of JSON")
    if not objects:
        numbers = [str(value) for value in values]
        return ReadingSample(name, origin, {"value": numbers}, "number", unreadable=unreadable)
    flat = [dict(_flat(each, "")) for each in objects]
    names = list(dict.fromkeys(name for each in flat for name in each))[:NAMES_MAX]
    columns = {name: [each.get(name, "") for each in flat] for name in names}
    ((format_, _),) = formats.most_common(1)
    return ReadingSample(name, origin, columns, format_, unreadable=unreadable)


def _objects(value: Any) -> tuple[list[Mapping[str, Any]], str]:
    """Return the readings of a message, and its format."""
    if isinstance(value, list):
        return [each for each in value if isinstance(each, dict)], "json-array"
    if not isinstance(value, dict):
        return [], "number"
    arrays = {name: given for name, given in value.items() if isinstance(given, list)}
    lengths = {len(given) for given in arrays.values()}
    plain = all(not isinstance(each, dict | list) for given in arrays.values() for each in given)
    if len(lengths) != 1 or not plain or len(arrays) < 2:
        return [value], "json"
    (n,) = lengths
    return [
        {name: given[i] if name in arrays else given for name, given in value.items()}
        for i in range(n)
    ], "json-columns"


def _flat(value: Mapping[str, Any], path: str) -> Iterable[tuple[str, str]]:
    """Yield the paths of an object's values, as a deployment file has them, and their texts."""
    for name, given in value.items():
        at = path + (name if _PLAIN.fullmatch(name) else f'"{name}"')
        if isinstance(given, dict):
            yield from _flat(given, f"{at}.")
        elif isinstance(given, list):
            if given and isinstance(given[0], dict):
                yield from _flat(given[0], f"{at}[0].")
        elif given is None or (isinstance(given, float) and not math.isfinite(given)):
            yield at, ""
        else:
            yield at, str(given).lower() if isinstance(given, bool) else str(given)
