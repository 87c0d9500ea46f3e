"""Reads a file row by row, or element by element, as the page of the deployment file has it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

from slackwater.judge.readers.cells import (
    Unusable,
    key_in,
    key_of,
    text_in,
    time_in,
    value_in,
)
from slackwater.judge.readers.json_files import is_json, read_json
from slackwater.judge.readers.parquet import PARQUET
from slackwater.judge.readers.rows import opened, rows_of
from slackwater.judge.readings import FileReading, StreamInput
from slackwater.model.deployment import CsvSpec, StreamSpec
from slackwater.model.errors import DeploymentError


def read_stream(spec: StreamSpec, path: Path, without: Set[int] = frozenset()) -> StreamInput:
    """Read a file of CSV, Parquet or JSON according to the stream's declaration.

    Rows that begin at the lines ``without``, or elements of these numbers, are treated as absent.
    """
    if is_json(path):
        return read_json(spec, path, without)
    if path.suffix == PARQUET:
        spec = replace(spec, csv=CsvSpec())
    found = StreamInput(spec)
    with opened(spec, path) as stream:
        rows = rows_of(stream, spec.csv.delimiter, spec.csv.skip_lines)
        _, first = next(rows, (1, None))
        columns = _Columns.of(spec, [cell.strip() for cell in first or []], path)
        for line, row in rows:
            if line in without:
                continue
            if row is not None and not any(cell.strip() for cell in row):
                found.blank += 1
                continue
            try:
                found.add(columns.reading(row))
            except Unusable as why:
                found.refuse(line, str(why))
    return found


@dataclass(frozen=True, slots=True)
class _Columns:
    """Where a row has the key, the parts of the time, and the fields."""

    spec: StreamSpec
    width: int
    key: tuple[int, ...]
    time: tuple[int, ...]
    fields: tuple[int, ...]

    @classmethod
    def of(cls, spec: StreamSpec, header: Sequence[str], path: Path) -> _Columns:
        """Find the declared columns; ``DeploymentError`` if one is absent or there twice."""

        def at(column: str) -> int:
            places = [str(n) for n, name in enumerate(header, 1) if name == column]
            if not places:
                known = ", ".join(header) or "nothing"
                reason = f"has no column {column!r}; its header has: {known}"
            elif len(places) > 1:
                reason = f"has {len(places)} columns {column!r}, numbers {' and '.join(places)}"
            else:
                return int(places[0]) - 1
            raise DeploymentError(f"stream {spec.name}: {path} {reason}")

        return cls(
            spec,
            len(header),
            tuple(map(at, spec.key.columns or filter(None, [spec.key.column]))),
            tuple(map(at, spec.time.columns)),
            tuple(at(field.source) for field in spec.fields),
        )

    def reading(self, row: Sequence[str] | None) -> FileReading:
        """Return the reading of a row; raises ``Unusable``."""
        if row is None:
            raise Unusable("line too long, or quote that is not closed")
        excess = row[self.width :]
        if len(excess) > 1 or any(cell.strip() for cell in excess):
            raise Unusable(f"{len(row)} cells, the header has {self.width}")
        cells = [*row, *[""] * (self.width - len(row))]
        spec = self.spec
        key = spec.key.value or ""
        if self.key:
            key = key_of([key_in(cells[i]) for i in self.key], spec.key.join)
        if "\N{REPLACEMENT CHARACTER}" in key:  # it stands for bytes that are not UTF-8
            raise Unusable("key is not UTF-8")
        stime = time_in(spec.time, spec.time.join.join(cells[i].strip() for i in self.time))
        values = [
            text_in(cells[i], spec) if field.is_text else value_in(cells[i], spec.csv.decimal, spec)
            for i, field in zip(self.fields, spec.fields, strict=True)
        ]
        return FileReading(stime, key, tuple(values))
