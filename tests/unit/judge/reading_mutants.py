"""Errors in the proxy's readers, each of which the judge's own readers must reveal.

A mutant is an edit of one function's source. The edited function takes the place of the original in
the running process, so that every caller has the error. The replaced text must exist once: a mutant
whose target has changed fails instead of testing nothing.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any, NamedTuple

from slackwater.formats import (
    carried,
    columns,
    csvtext,
    json_array,
    json_columns,
    json_input,
    json_tables,
    json_text,
    jsonfile,
    localtimes,
    repeated,
)
from slackwater.formats.avro import batch as avro_batch
from slackwater.formats.avro import reader as avro_reader
from slackwater.formats.avro import schema as avro_schema
from slackwater.formats.csvfile import CsvFile
from slackwater.formats.csvtext import CsvSource
from slackwater.formats.json_input import JsonReader
from slackwater.formats.jsonfile import JsonPlaces
from slackwater.model.meanings import Meanings
from slackwater.proxy.http import bodies, senml, tables
from slackwater.proxy.mqtt import messages as mqtt_messages


class ReadingMutant(NamedTuple):
    """An error in a function of the proxy."""

    name: str
    function: Any
    old: str
    new: str


FILES = (
    ReadingMutant("all texts are the first", columns._codes, "codes[index],", "codes[0 * index],"),
    ReadingMutant(
        "all declared texts mean the same",
        columns._quick_with_texts,
        "looked_up[at]",
        "looked_up[0]",
    ),
    ReadingMutant(
        "numbers are never missing",
        Meanings.of_column,
        "np.isin(values, self.numbers)",
        "values > 1e9",
    ),
    ReadingMutant(
        "a line too many is skipped", CsvFile._below, "lines[left:]", "lines[left + 1 :]"
    ),
    ReadingMutant(
        "the next column", CsvFile._find, "return numbers[0] - 1", "return numbers[-1] % 3"
    ),
    ReadingMutant("the last of two columns", CsvFile._find, "if len(numbers) > 1:", "if False:"),
    ReadingMutant("cells too many are cut off", csvtext.fitting, "len(cells) <= columns", "True"),
    ReadingMutant("an empty cell too many", csvtext.fitting, "len(cells) == columns + 1", "False"),
    ReadingMutant(
        "short rows are empty", CsvFile._column, "if i < len(row.cells) else", "if False else"
    ),
    ReadingMutant(
        "blanks round cells",
        columns.trimmed,
        "pc.utf8_trim_whitespace(texts)",
        "pc.utf8_ltrim_whitespace(texts)",
    ),
    ReadingMutant("an empty key is a key", columns.keys_of, 'index == keys.index("")', "empty"),
    ReadingMutant("key of other bytes", CsvFile._convert, "if REPLACED in key", "if False"),
    ReadingMutant(
        "the offset of a time is left out",
        columns._quick_iso,
        "cast = _cast(texts, kind)",
        "cast = _cast(pc.utf8_slice_codeunits(texts, 0, 19), kind)",
    ),
    ReadingMutant(
        "the offset of an odd time is left out",
        columns._since_epoch,
        "if time.tzinfo is None:",
        "if True:",
    ),
    ReadingMutant(
        "fractions are rounded", columns.exact_times, "low // 1000", "(low + 500) // 1000"
    ),
    ReadingMutant(
        "fractions of odd times are rounded",
        columns._unix_us,
        'us = int("0" + kept)',
        'us = int("0" + kept) + (rest[:1] > "4")',
    ),
    ReadingMutant(
        "times before 1970 are cut towards it",
        columns._unix_us,
        'bool(rest.strip("0"))',
        "0",
    ),
    ReadingMutant(
        "milliseconds are seconds",
        columns.microseconds,
        "power = UNIT_DIGITS[unit]",
        "power = UNIT_DIGITS['s']",
    ),
    ReadingMutant(
        "nanoseconds before 1970 are cut towards it",
        columns.microseconds,
        "counts // 10**-power",
        "np.trunc(counts / 10**-power).astype(np.int64)",
    ),
    ReadingMutant(
        "day and month change places",
        columns._parse_fixed,
        "found[part[1]] = digits",
        "found[{'d': 'm', 'm': 'd'}.get(part[1], part[1])] = digits",
    ),
    ReadingMutant(
        "every month has 31 days",
        columns._instant,
        "np.any(day > after - first)",
        "np.any(day > 31)",
    ),
    ReadingMutant("seconds are left out", columns._instant, "minute * 60 + second", "minute * 60"),
    ReadingMutant(
        "the decimal comma is left out",
        columns._quick_numbers,
        'pc.replace_substring(texts, decimal, ".")',
        'pc.replace_substring(texts, decimal, "")',
    ),
    ReadingMutant(
        "the odd decimal comma is left out",
        columns.number_of,
        'text.replace(decimal, ".")',
        'text.replace(decimal, "")',
    ),
    ReadingMutant("a missing value is 0", columns.number_of, "return math.nan", "return 0.0"),
    ReadingMutant(
        "missing values of a column are malformed",
        columns.number_of,
        "if text.lower() in MISSING:",
        "if not text:",
    ),
    ReadingMutant(
        "values beyond doubles are infinite",
        columns.number_of,
        "meanings.of_number(value) if math.isfinite(value) else None",
        "value",
    ),
    ReadingMutant("quotes are letters", CsvFile._parse, "if b'\"' in data:", "if False:"),
    ReadingMutant("the header is a row", CsvFile.pieces, "self._header_lines", "0"),
    ReadingMutant(
        "the last line needs its end",
        csvtext._complete_lines,
        "yield kept",
        "yield kept[: kept.rfind(b'\\n') + 1]",
    ),
    ReadingMutant("the end of the file is lost", csvtext._complete_lines, "if kept:", "if False:"),
    ReadingMutant(
        "a row at the end of a block is lost",
        csvtext._complete_lines,
        "yield data[:cut]",
        "yield data[:data.rfind(b'\\n', 0, cut - 1) + 1] if len(data) > 200 else data[:cut]",
    ),
    ReadingMutant(
        "the first member of an archive only",
        CsvSource._open,
        'gzip.open(self.path, "rb")',
        "__import__('io').BytesIO(__import__('zlib').decompressobj(31).decompress(self.path.read_bytes()))",
    ),
    ReadingMutant(
        "a byte order mark is of the first name",
        CsvSource._checked,
        "first.removeprefix(BOM)",
        "first",
    ),
    ReadingMutant(
        "CR ends no line",
        CsvFile._parse_plain,
        'data.count(b"\\r") != data.count(b"\\r\\n")',
        "False",
    ),
    ReadingMutant(
        "blank lines are malformed", CsvFile._row, "if any(map(str.strip, cells)) else None", ""
    ),
    ReadingMutant(
        "rows of one length only", CsvFile._parse_plain, "content & ~usual", "content & ~content"
    ),
    ReadingMutant(
        "a row of several lines is cut",
        csvtext._Feed.__next__,
        "or self._start < self.alone",
        "or True",
    ),
    ReadingMutant(
        "the doubled hour is the first",
        localtimes.LocalTimes.instant_of,
        'first if self._fold == "first" else second',
        "first",
    ),
    ReadingMutant(
        "local times of columns are UTC",
        localtimes.LocalTimes.instants_of,
        "local_us - offsets[places]",
        "local_us - 0 * offsets[places]",
    ),
    ReadingMutant(
        "the case of an odd declared text matters",
        Meanings.of_text,
        "in_small_letters(text)",
        "text",
    ),
    ReadingMutant(
        "one line less before the header",
        CsvFile._read_header,
        "skipped = self.spec.csv.skip_lines",
        "skipped = max(0, self.spec.csv.skip_lines - 1)",
    ),
)
"""Of CSV: files, and bodies over HTTP."""


MESSAGES = (
    ReadingMutant("true is false", Meanings.of_boolean, "if value else", "if not value else"),
    ReadingMutant(
        "a registry's id has three bytes",
        json_text.without_header,
        "message[REGISTRY_HEADER_BYTES:]",
        "message[REGISTRY_HEADER_BYTES - 1 :]",
    ),
    ReadingMutant("a path of one step", json_input.step_into, "in path:", "in path[:1]:"),
    ReadingMutant("indexes from 1", json_input.step_into, "data[step]", "data[step - 1]"),
    ReadingMutant("null is 0", json_input._number, "return math.nan", "return 0.0"),
    ReadingMutant(
        "null of a column is 0",
        json_tables.quick_values,
        'pc.fill_null(column, "")',
        'pc.fill_null(column, "0")',
    ),
    ReadingMutant(
        "numbers in quotes are malformed",
        json_input._number,
        "isinstance(value, str)",
        "type(value) is not str and isinstance(value, str)",
    ),
    ReadingMutant("blanks round keys of messages", json_input._key, "value.strip()", "value"),
    ReadingMutant(
        "the last of two members", repeated.object_of, "len(found) < len(pairs)", "False"
    ),
    ReadingMutant("a boundary with readings", json_input.is_boundary, "and len(data) == 1", ""),
    ReadingMutant("a time of any digits", JsonReader._stime, "not _TIME.fullmatch(value)", "False"),
    ReadingMutant(
        "any depth", json_text._is_deeper, "int(depth.max(initial=0)) > depth_max", "False"
    ),
    ReadingMutant("any length", json_text.load_value, "len(message) > MESSAGE_BYTES_MAX", "False"),
    ReadingMutant(
        "bytes that are not UTF-8",
        json_text.load_value,
        "message.decode()",
        "message.decode(errors='replace')",
    ),
    ReadingMutant(
        "the first key for all",
        JsonReader._merged,
        "places[rest.key_index]",
        "places[rest.key_index * 0]",
    ),
    ReadingMutant(
        "values of other messages",
        JsonReader._merged,
        "column[rest.indices] = of_rest",
        "column[rest.indices[:1]] = of_rest[:1]",
    ),
    ReadingMutant(
        "malformed messages are readings",
        JsonReader._merged,
        "is_reading[scanned.left] = False",
        "pass",
    ),
    ReadingMutant(
        "an array is divided in its texts",
        json_array.JsonArrayReader._quick,
        "if _is_broken(pieces[bad.index])",
        "if False",
    ),
    ReadingMutant(
        "elements that are no objects are left out",
        json_array._elements,
        "return value",
        "return [v for v in value if isinstance(v, dict)]",
    ),
    ReadingMutant(
        "columns of any length",
        json_columns.JsonColumnsReader.message_of,
        "if len(lengths) != 1 or lengths[0]",
        "if not lengths or lengths[0]",
    ),
    ReadingMutant(
        "a single value in the first row",
        json_columns._spread,
        "np.repeat(values, counts)",
        "np.repeat(values, counts) * (np.arange(int(counts.sum())) < 1)",
    ),
    ReadingMutant(
        "columns with one of two members",
        json_columns.JsonColumnsReader.message_of,
        "if repeated is not None:",
        "if False:",
    ),
)
"""Of JSON: topics, MQTT, bodies."""
AVRO = (
    ReadingMutant(
        "numbers without a sign",
        avro_batch._Decoder._varints,
        "^ -(values & np.uint64(1))",
        "",
    ),
    ReadingMutant(
        "bytes of doubles in the other order", avro_batch._Decoder._values, '"<f8"', '">f8"'
    ),
    ReadingMutant(
        "the next symbol of an enum",
        avro_reader._Plan._keys,
        "pa.array(kind.symbols)",
        "pa.array(kind.symbols[1:] + kind.symbols[:1])",
    ),
    ReadingMutant("no unit of a logical type", avro_reader._Plan.of, "time.unit", "''"),
    ReadingMutant("bytes after the record", avro_schema.decode, "end != len(message)", "False"),
    ReadingMutant("blanks round keys of Avro", columns.keys_of, "key.strip()", "key + ''"),
)
SENML = (
    ReadingMutant("no base time", senml._stime, "base.time + ", ""),
    ReadingMutant("no base value", senml._value, "Decimal(base.value) + ", ""),
    ReadingMutant(
        "the first base name for all", senml._Base.take, "= _text(", "= self.name or _text("
    ),
    ReadingMutant("relative times since 1970", senml._stime, "us += now_us", "pass"),
    ReadingMutant("times of SenML are rounded", senml._stime, "math.floor(", "round("),
    ReadingMutant(
        "the base value before a malformed one",
        senml.read_senml,
        "if isinstance(why, _MalformedBase):",
        "if False:",
    ),
    ReadingMutant(
        "the last of two values of one time",
        senml.read_senml,
        "if reading is None or name in reading.values:",
        "if reading is None:",
    ),
    ReadingMutant("a name without its key", senml._placed, "complete[: -len(", "name[: -len("),
)
TABLES = (
    ReadingMutant("blanks round keys of Arrow", columns.keys_of, "key.strip()", "key + ''"),
    ReadingMutant("timestamps are declared", tables._times, "column, kind.unit", "column, 's'"),
    ReadingMutant(
        "nanoseconds of Arrow are rounded",
        columns.microseconds,
        "counts // 10**-power",
        "(counts + 500) // 10**-power",
    ),
    ReadingMutant("a time of null is 1970", tables._bounded, "if column.null_count:", "if False:"),
    ReadingMutant(
        "infinity is a value", tables._values, "np.isinf(values)", "np.isnan(values) & False"
    ),
    ReadingMutant(
        "a body is divided in its texts", bodies.read_json, "if not any(", "if True or any("
    ),
)
JSON_FILES = (
    ReadingMutant(
        "inner commas divide an array", JsonPlaces._elements, "depth == 1):", "depth >= 1):"
    ),
    ReadingMutant(
        "an empty array has a reading", JsonPlaces._elements, "found = []  # an", "pass  # an"
    ),
    ReadingMutant(
        "what follows an array is left out",
        JsonPlaces._elements,
        "if is_over and data.strip(_BLANK):",
        "if False:",
    ),
    ReadingMutant(
        "an array that is cut off is whole", JsonPlaces._elements, "if not is_over:", "if False:"
    ),
    ReadingMutant(
        "an array of several blocks is its first",
        JsonPlaces._elements,
        "data += block",
        "data = block",
    ),
    ReadingMutant(
        "blanks before an array", JsonPlaces._begins_with_bracket, "block.lstrip(_BLANK)", "block"
    ),
    ReadingMutant("an end of line is a blank", jsonfile._lines, r'split(b"\n")', r'split(b"\r")'),
    ReadingMutant(
        "the last line has an end", jsonfile._lines, "not texts or (", "not texts or not more or ("
    ),
    ReadingMutant("watermarks are nothing", jsonfile._malformed, "in parsed.boundaries", "in ()"),
)
MQTT = (
    ReadingMutant(
        "the next level",
        mqtt_messages._key_of,
        "given[level - 1].strip()",
        "given[level - 2].strip()",
    ),
    ReadingMutant("blanks round levels", mqtt_messages._key_of, ".strip()", ""),
    ReadingMutant(
        "readings of another topic",
        carried.with_keys,
        "keys.index[_messages_of(parsed)]",
        "keys.index[_messages_of(parsed) * 0]",
    ),
)


def of_code(function: Any) -> FunctionType:
    """Return the plain function of a method or a static method."""
    found = inspect.unwrap(getattr(function, "__func__", function))
    assert isinstance(found, FunctionType)
    return found


@contextmanager
def planted(mutant: ReadingMutant) -> Iterator[None]:
    """Run with the error in the proxy."""
    function = of_code(mutant.function)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(mutant.old) == 1, (
        f"{mutant.name}: {source.count(mutant.old)} {mutant.old!r}"
    )
    edited = source.replace(mutant.old, mutant.new)
    edited = edited[edited.index("def ") :]  # without decorators
    names: dict[str, Any] = {}
    code = compile("from __future__ import annotations\n" + edited, mutant.name, "exec")
    exec(code, function.__globals__, names)
    original = function.__code__
    function.__code__ = names[function.__name__].__code__
    try:
        yield
    finally:
        function.__code__ = original
