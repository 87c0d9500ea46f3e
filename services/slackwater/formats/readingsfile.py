"""Opens a file of readings: the end of its name decides how it is read.

A stream of files declares columns, those of CSV and Parquet, or fields, those of JSON. In a stream
with http both are the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from slackwater.formats.csvfile import CsvFile
from slackwater.formats.jsonfile import JSON_ENDINGS, JsonFile, is_json
from slackwater.formats.pieces import PIECE_BYTES_DEFAULT, Guard, ReadingsFile
from slackwater.model.deployment import StreamSpec
from slackwater.model.errors import DeploymentError

SENML_ENDING: Final = ".senml.json"


def open_readings(
    spec: StreamSpec,
    path: Path,
    piece_bytes: int = PIECE_BYTES_DEFAULT,
    guard: Guard | None = None,
) -> ReadingsFile:
    """Open a file.

    Raises:
        DeploymentError: it is of another kind than its stream declares, cannot be read, or lacks a
            column.
    """
    has_fields = spec.http is not None or not spec.time.columns
    if path.name.removesuffix(".gz").endswith(SENML_ENDING):
        raise DeploymentError(f"stream {spec.name}: {path} is SenML, which is read only if posted")
    if is_json(path):
        if not has_fields:
            raise DeploymentError(
                f"stream {spec.name}: {path} is JSON, and the stream declares columns, which are"
                " those of CSV: write `field` instead of `column`"
            )
        return JsonFile(spec, path, piece_bytes, guard)
    if spec.http is None and has_fields:
        *others, last = JSON_ENDINGS
        raise DeploymentError(
            f"stream {spec.name} reads JSON, and {path} is read as CSV: give a file whose name ends"
            f" with {', '.join(others)} or {last}, or declare `column` instead of `field`"
        )
    return CsvFile(spec, path, piece_bytes, guard)
