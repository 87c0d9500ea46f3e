"""Replaces all readers by one that ends its process at a magic word.

With ``FOLDER`` on PYTHONPATH every Python process of a test imports it at its start.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

WORD = b"end-of-the-reader"
RAISING = b"the-reader-raises"


def patch() -> None:
    """Patch all readers: one word ends the process, another raises."""
    from slackwater.formats.csvfile import CsvFile
    from slackwater.formats.json_array import JsonArrayReader
    from slackwater.formats.json_columns import JsonColumnsReader
    from slackwater.formats.json_input import JsonReader

    parse_csv = CsvFile._parse

    def csv(self: CsvFile, data: bytes, first_line: int, *, last: bool) -> Any:
        _die_of(data)
        return parse_csv(self, data, first_line, last=last)

    CsvFile._parse = csv  # type: ignore[method-assign]
    readers: tuple[Any, ...] = (JsonReader, JsonArrayReader, JsonColumnsReader)
    for reader in readers:
        reader.parse = _mortal(reader.parse)


def _mortal(parse: Callable[[Any, Sequence[bytes]], Any]) -> Callable[[Any, Sequence[bytes]], Any]:
    def parse_or_die(self: Any, messages: Sequence[bytes]) -> Any:
        _die_of(*messages)
        return parse(self, messages)

    return parse_or_die


def _die_of(*some: bytes) -> None:
    for one in some:
        if WORD in one:
            os.abort()
        if RAISING in one:
            raise ZeroDivisionError("a reader of a test")


def install(folder: Path) -> str:
    """Write the module that Python imports at its start; return the PYTHONPATH."""
    root = Path(__file__).parents[2]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(
        "from tests.support.reader_that_dies import patch\npatch()\n"
    )
    return os.pathsep.join((str(folder), str(root / "services"), str(root)))
