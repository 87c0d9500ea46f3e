"""Reads generated input and reports wrong results.

Messages: a batch must give the same as the definition for each message, once each, and the
definition the same as the judge's own reader. Files: pieces of any size must give the same as the
judge's reader row by row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from slackwater.formats.json_array import JsonArrayReader
from slackwater.formats.json_columns import JsonColumnsReader
from slackwater.formats.json_input import JsonReader, MessageReading
from slackwater.formats.messages import Bad, Parsed
from slackwater.formats.readingsfile import open_readings
from slackwater.judge.readers.cells import Unusable
from slackwater.judge.readers.files import read_stream
from slackwater.judge.readers.messages import UnusableElement, Watermark, read_message
from slackwater.judge.readings import FileReading
from slackwater.model.deployment import StreamSpec

Findings = list[str]
SHOWN_CHARS_MAX = 300


def judge_messages(spec: StreamSpec, messages: list[bytes]) -> Findings:
    """Compare a batch, with the scanner and without, with each message read by itself."""
    reader = JsonReader(spec)
    read = [reader.reading_of(message) for message in messages]
    wanted = [_defined(one) for one in read]
    not_finite = sum(one.not_finite for one in read if isinstance(one, MessageReading))
    ways = {"parse": reader.parse, "parse_without_scanner": reader.parse_without_scanner}
    found = [
        f"{name}: {finding}"
        for name, parse in ways.items()
        for finding in _judge(parse(messages), messages, wanted, not_finite)
    ]
    alone = ([_without_reason(one)] for one in wanted)
    return found + _unlike_the_judge(spec, "json", messages, alone)


def judge_columns(spec: StreamSpec, messages: list[bytes]) -> Findings:
    """The same for messages of columns, element by element."""
    reader = JsonColumnsReader(spec)
    defined = [reader.message_of(message) for message in messages]
    wanted = [_elements(one) for one in defined]
    not_finite = sum(one.not_finite for one in defined)
    found = []
    for name, parse in {
        "parse": reader.parse,
        "parse_without_scanner": reader.parse_without_scanner,
    }.items():
        parsed = parse(messages)
        read = _by_message(parsed, len(messages))
        found += _counted(parsed, not_finite)
        found += [
            f"{name}: {message[:SHOWN_CHARS_MAX]!r}: read as {one}, is {other}"
            for message, one, other in zip(messages, read, wanted, strict=True)
            if one != other
        ]
    alone = ([_without_reason(outcome) for _, _, outcome in elements] for elements in wanted)
    return found + _unlike_the_judge(spec, "json-columns", messages, alone)


def judge_arrays(spec: StreamSpec, messages: list[bytes]) -> Findings:
    """Compare messages that are arrays of these with the judge's reader."""
    joined = [b"[" + b", ".join(messages[i : i + 7]) + b"]" for i in range(0, len(messages), 7)]
    read = _by_message(JsonArrayReader(spec).parse(joined), len(joined))
    alone = ([_without_reason(outcome) for _, _, outcome in elements] for elements in read)
    return _unlike_the_judge(spec, "json-array", joined, alone)


def _unlike_the_judge(
    spec: StreamSpec, form: str, messages: list[bytes], read: Iterable[list[Any]]
) -> Findings:
    """Compare what was read of each message with the judge's reader, reasons left out."""
    found = []
    for message, one in zip(messages, read, strict=True):
        try:
            judged = [_judged(outcome) for outcome in read_message(spec, form, message)]
        except Unusable:
            judged = ["malformed"]
        if one != judged:
            found.append(f"{message[:SHOWN_CHARS_MAX]!r}: read as {one}, judged as {judged}")
    return found


def _counted(parsed: Parsed, not_finite: int) -> Findings:
    if parsed.not_finite == not_finite:
        return []
    return [f"{parsed.not_finite} values of NaN or Infinity, are {not_finite}"]


def _judged(outcome: FileReading | Watermark | UnusableElement) -> Any:
    match outcome:
        case FileReading(stime, key, values):
            return (stime, key, repr([math.nan if v is None else v for v in values]))
        case Watermark(stime):
            return stime
        case _:
            return "malformed"


def _without_reason(outcome: Any) -> Any:
    is_malformed = isinstance(outcome, tuple) and outcome[0] == "malformed"
    return "malformed" if is_malformed else outcome


def _by_message(parsed: Parsed, messages: int) -> list[Any]:
    """Return the elements of each message; all elements and their readings are in order."""
    found: list[Any] = [[] for _ in range(messages)]
    elements = _elements(parsed)
    assert parsed.elements is not None
    at = parsed.elements.messages
    of_readings = at[parsed.indices]
    assert (of_readings[1:] >= of_readings[:-1]).all(), "the messages are not in order"
    assert (parsed.indices[1:] > parsed.indices[:-1]).all(), "the readings are not in order"
    for message, element in zip(at.tolist(), elements, strict=True):
        found[message].append(element)
    return found


def _elements(parsed: Parsed) -> list[Any]:
    """Return each element: its index, whether it is the last, and what was read."""
    elements = parsed.elements
    assert elements is not None
    read, total = _outcomes(parsed)
    assert sorted(read) == list(range(len(elements))), "an element was not read"
    assert total == len(elements), "an element was read twice"
    numbers = zip(elements.indices.tolist(), elements.lasts.tolist(), strict=True)
    return [(*number, read[i]) for i, number in enumerate(numbers)]


def _outcomes(parsed: Parsed) -> tuple[dict[int, Any], int]:
    """Return what was read by index, and the number of outcomes: greater if one is repeated."""
    read: dict[int, Any] = {bad.index: ("malformed", bad.detail, bad.stime) for bad in parsed.bad}
    read |= dict(parsed.boundaries)
    columns = [column.tolist() for column in parsed.values]
    for i, at in enumerate(parsed.indices.tolist()):
        values = repr([column[i] for column in columns])
        read[at] = (int(parsed.stimes[i]), parsed.keys[int(parsed.key_index[i])], values)
    return read, len(parsed.bad) + len(parsed.boundaries) + len(parsed.indices)


def _judge(parsed: Parsed, messages: list[bytes], wanted: list[Any], not_finite: int) -> Findings:
    read, total = _outcomes(parsed)
    if sorted(read) != list(range(len(messages))) or total != len(messages):
        return [f"{len(messages)} messages were read as {total}"]
    found = _counted(parsed, not_finite)
    for i, message in enumerate(messages):
        if read[i] != wanted[i]:
            found.append(f"{message[:SHOWN_CHARS_MAX]!r}: read as {read[i]}, is {wanted[i]}")
    return found


def _defined(one: MessageReading | int | Bad) -> Any:
    match one:
        case MessageReading(stime, key, values):
            return (stime, key, repr(list(values)))
        case Bad(_, detail, stime):
            return ("malformed", detail, stime)
        case _:
            return one


def judge_file(spec: StreamSpec, path: Path, piece_bytes: int) -> Findings:
    """Compare a file with the rehearsal's oracle."""
    read: list[Any] = []
    malformed = blank = 0
    for piece in open_readings(spec, path, piece_bytes).pieces():
        arrived = piece.arrived
        columns = [[None if v != v else v for v in c.tolist()] for c in arrived.values]  # noqa: PLR0124
        keys = [arrived.keys[i] for i in arrived.key_index.tolist()]
        read += zip(arrived.stimes.tolist(), keys, zip(*columns, strict=True), strict=True)
        malformed += len(piece.malformed)
        blank += piece.blank
    oracle = read_stream(spec, path)
    wanted = [(one.stime, one.key, one.values) for one in oracle.readings]
    found = []
    if (malformed, blank) != (oracle.malformed, oracle.blank):
        reported = (
            f"{malformed} malformed and {blank} blank, are {oracle.malformed} and {oracle.blank}"
        )
        found.append(f"{len(read)} of {len(wanted)} readings, {reported}")
    found += [f"read as {a}, is {b}" for a, b in zip(read, wanted, strict=False) if a != b][:3]
    if len(read) != len(wanted) and not found:
        found.append(f"{len(read)} readings, are {len(wanted)}")
    return found
