"""A double for both readers that ends its process for good at a magic word.

``FOLDER`` on PYTHONPATH makes every Python process of a test import it at its start.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WORD = b"end-of-the-reader"
RAISING = b"the-reader-raises"


def patch() -> None:
    """Both readers die of one word, and raise at the other."""
    from slackwater.proxy.csvfile import CsvFile
    from slackwater.proxy.json_input import JsonReader

    parse_json, parse_csv = JsonReader.parse, CsvFile._parse

    def json(self: JsonReader, messages: Sequence[bytes]) -> Any:
        _die_of(*messages)
        return parse_json(self, messages)

    def csv(self: CsvFile, data: bytes, first_line: int, *, last: bool) -> Any:
        _die_of(data)
        return parse_csv(self, data, first_line, last=last)

    JsonReader.parse = json  # type: ignore[method-assign]
    CsvFile._parse = csv  # type: ignore[method-assign]


def _die_of(*some: bytes) -> None:
    for one in some:
        if WORD in one:
            os.abort()
        if RAISING in one:
            raise ZeroDivisionError("a reader of a test")


def install(folder: Path) -> str:
    """Write the module that Python imports at its start; what PYTHONPATH is to be."""
    root = Path(__file__).parents[1]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text("from tests.reader_that_dies import patch\npatch()\n")
    return os.pathsep.join((str(folder), str(root)))
