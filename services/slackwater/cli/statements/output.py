"""Rows of a statement as a table, as JSON lines or as CSV."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from typing import Any, Final

import orjson

from slackwater.cli.common import emit
from slackwater.cli.statements.outcomes import COLUMNS, Row
from slackwater.model.errors import UsageError

FORMATS: Final = ("table", "jsonl", "csv")
WIDTH_MIN: Final = 12
"""Width of a column whose values are not known when the first row is printed."""


class RowOutput:
    """Prints rows in one of ``FORMATS``."""

    def __init__(self, format_: str) -> None:
        if format_ not in FORMATS:
            raise UsageError(f"--format {format_}: choose table, jsonl or csv")
        self._format = format_

    def rows(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Print rows, all of which are there; the last column of a table has any width."""
        shown = [*rows]
        widths = [
            max(len(name), *(len(_text(row[i])) for row in shown), 1)
            for i, name in enumerate(columns)
        ]
        self._print(columns, shown, widths)

    def stream(
        self, columns: Sequence[str], rows: Iterable[Sequence[Any]], widths: Mapping[str, int]
    ) -> None:
        """Print rows as they come; ``widths`` of columns that are wider than ``WIDTH_MIN``."""
        least = [max(len(name), widths.get(name, WIDTH_MIN)) for name in columns]
        self._print(columns, rows, least)

    def text(self, text: str) -> None:
        """Print a text, such as a statement, which is the same in all formats but JSON lines."""
        if self._format == "jsonl":
            emit(orjson.dumps({"text": text}).decode(), is_json=True)
        else:
            emit(text)

    def outcomes(self, rows: Iterable[Row]) -> None:
        """Print what became of statements, for programs; people have read a sentence of each."""
        if self._format != "table":
            self.rows(COLUMNS, rows)

    def reporting(self) -> AbstractContextManager[Any]:
        """Sentences that are printed meanwhile do not mix with rows for programs."""
        return nullcontext() if self._format == "table" else redirect_stdout(sys.stderr)

    def _print(
        self, columns: Sequence[str], rows: Iterable[Sequence[Any]], widths: Sequence[int]
    ) -> None:
        if self._format == "table":
            emit(_line(columns, widths))
        elif self._format == "csv":
            emit(_csv(columns))
        for row in rows:
            if self._format == "table":
                emit(_line([*map(_text, row)], widths))
            elif self._format == "csv":
                emit(_csv(row))
            else:
                object_ = dict(zip(columns, row, strict=True))
                emit(orjson.dumps(object_).decode(), is_json=True)


def _text(value: Any) -> str:
    return "null" if value is None else str(value)


def _line(values: Sequence[str], widths: Sequence[int]) -> str:
    padded = (f"{value:<{width}}" for value, width in zip(values, widths, strict=True))
    return "  ".join(padded).rstrip()


def _csv(values: Sequence[Any]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(values)
    return line.getvalue()
