"""Reads a file of JSON, as the page of the deployment file has it: lines, or one array.

The whole file is in memory, as its readings are. An array is divided character by character.
"""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import Final

from slackwater.judge.readers.cells import Unusable
from slackwater.judge.readers.messages import MESSAGE_BYTES_MAX, read_message
from slackwater.judge.readers.rows import opened
from slackwater.judge.readings import FileReading, StreamInput
from slackwater.model.deployment import StreamSpec
from slackwater.model.errors import DeploymentError

_ENDINGS: Final = {".json", ".ndjson", ".jsonl"}
_BLANKS: Final = b"\t\n\r "


def is_json(path: Path) -> bool:
    """Whether the name of a file says that it is JSON, packed or not."""
    *_, before, last = ["", "", *path.suffixes]
    return last in _ENDINGS or (last == ".gz" and before in _ENDINGS)


def read_json(spec: StreamSpec, path: Path, without: Set[int]) -> StreamInput:
    """Read a file; ``DeploymentError`` if it is an array that is damaged."""
    found = StreamInput(spec)
    with opened(spec, path) as stream:
        data = stream.read().removeprefix(b"\xef\xbb\xbf")
    if data.strip(_BLANKS)[:1] == b"[":
        texts = _elements(data.strip(_BLANKS))
        if texts is None:
            raise DeploymentError(f"stream {spec.name}: {path} is damaged: its array is not whole")
    else:
        texts = data.split(b"\n")
        if not texts[-1].strip(_BLANKS):
            texts.pop()
        found.blank = sum(1 for text in texts if not text.strip(_BLANKS))
    for number, text in enumerate(texts, 1):
        is_blank_line = found.blank > 0 and not text.strip(_BLANKS)
        if number in without or is_blank_line:
            continue
        try:
            found.add(_reading(spec, text))
        except Unusable as why:
            found.refuse(number, str(why))
    return found


def _elements(array: bytes) -> list[bytes] | None:
    """Return the texts between the commas of an array; None if it is not whole."""
    elements: list[bytes] = []
    begin, level = 1, 0
    is_text = is_escaped = False
    for at, character in enumerate(array.decode("latin-1")):
        if is_text:
            is_text = is_escaped or character != '"'
            is_escaped = character == "\\" and not is_escaped
            continue
        is_text = character == '"'
        level += (character in "[{") - (character in "]}")
        if level == 0 or (level == 1 and character == ","):
            elements.append(array[begin:at])
            begin = at + 1
        if level == 0:
            break
    is_complete = level == 0 and begin == len(array)
    if not is_complete or max(map(len, elements)) > MESSAGE_BYTES_MAX:
        return None
    is_empty = len(elements) == 1 and not elements[0].strip(_BLANKS)
    return [] if is_empty else elements


def _reading(spec: StreamSpec, text: bytes) -> FileReading:
    if len(text) > MESSAGE_BYTES_MAX:
        raise Unusable("line of too many bytes")
    (outcome,) = read_message(spec, "json", text.strip(_BLANKS))
    if not isinstance(outcome, FileReading):
        raise Unusable(getattr(outcome, "reason", "a watermark, which a file has not"))
    return outcome
