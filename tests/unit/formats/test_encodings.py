"""Byte order marks and wide encodings: refused with their names, in each format of text."""

from __future__ import annotations

import codecs
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.formats.test_number import SPEC as NUMBERS
from tests.unit.machine.test_layout import stream

from slackwater.cli.drafting.topics import sample_of
from slackwater.formats.encodings import MARKED, encoding_fault, wide_encoding
from slackwater.formats.json_input import JsonReader
from slackwater.formats.json_text import Unreadable, load
from slackwater.formats.number import NumberReader
from slackwater.formats.readingsfile import open_readings
from slackwater.model.deployment import KeySpec, TimeSpec
from slackwater.model.errors import DeploymentError, UsageError
from slackwater.runtime.logs.transport import RawRecord

ONE = '{"t": 1, "v": 2.5}'
WIDE = {
    "utf-16": "UTF-16",
    "utf-16-le": "UTF-16",
    "utf-16-be": "UTF-16",
    "utf-32": "UTF-32",
    "utf-32-le": "UTF-32",
    "utf-32-be": "UTF-32",
}


def why(message: bytes) -> str:
    with pytest.raises(Unreadable) as refused:
        load(message)
    return str(refused.value)


def test_a_message_that_begins_with_a_byte_order_mark_is_told_so() -> None:
    assert why(codecs.BOM_UTF8 + ONE.encode()) == MARKED
    header = b"\0\0\0\1\0"  # of a schema registry
    assert why(header + codecs.BOM_UTF8 + ONE.encode()) == MARKED
    (bad,) = JsonReader(stream("lab")).parse([codecs.BOM_UTF8 + ONE.encode()]).bad
    assert bad.detail == MARKED


@pytest.mark.parametrize("encoding", WIDE)
def test_the_encoding_of_a_message_is_named(encoding: str) -> None:
    assert why(ONE.encode(encoding)) == f"is {WIDE[encoding]}: write UTF-8"
    (bad,) = NumberReader(NUMBERS).parse(["21.5".encode(encoding)]).bad
    assert bad.detail == f"is {WIDE[encoding]}: write UTF-8"


@pytest.mark.parametrize(
    "message", [b"{", b"\0", b"\0\0\0\1\0{", b"\0\0\0\0\7not", b"", b"x", b"21.5", b"\0\0\0\1"]
)
def test_what_is_merely_no_json_has_no_encoding(message: bytes) -> None:
    assert encoding_fault(message) == ""
    assert wide_encoding(message) == ""


def test_other_bytes_are_no_utf8() -> None:
    assert why(b'{"t": "\xe4"}') == "not UTF-8"


def test_a_mark_before_a_number_is_named() -> None:
    parsed = NumberReader(NUMBERS).parse([codecs.BOM_UTF8 + b"21.5", b"x", b"21.5"])
    assert [bad.detail for bad in parsed.bad] == [MARKED, "field v"]


@pytest.mark.parametrize("encoding", WIDE)
@pytest.mark.parametrize("name", ["x.csv", "x.ndjson"])
def test_the_encoding_of_a_file_is_named_with_what_converts_it(
    encoding: str, name: str, tmp_path: Path
) -> None:
    path, spec, text = tmp_path / name, stream("lab"), "node,ts,temperature\n"
    if name == "x.ndjson":
        spec = replace(spec, key=KeySpec(field="node"), time=TimeSpec(field="ts", unit="ms"))
        text = f"{ONE}\n"
    path.write_bytes(text.encode(encoding))
    with pytest.raises(DeploymentError) as refused:
        for _ in open_readings(spec, path).pieces():
            pass
    wide = WIDE[encoding]
    assert f"is {wide} text: convert it, `iconv -f {wide} -t UTF-8`" in str(refused.value)


def test_init_names_the_encoding_of_messages() -> None:
    marked = RawRecord("t", 0, 0, 0, None, codecs.BOM_UTF8 + ONE.encode())
    with pytest.raises(UsageError, match="its messages are no JSON: begins with a byte order mark"):
        sample_of([marked], "t", "t")
