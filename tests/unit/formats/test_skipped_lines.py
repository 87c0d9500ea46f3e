"""Lines before the header of a CSV file: ignored by files, bodies and the judge, and counted."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.deployment.test_deployment_file import changed, errors

from slackwater.deployment.parse import parse_deployment
from slackwater.formats.csvfile import CsvFile
from slackwater.judge.readers.files import read_stream
from slackwater.model.deployment import (
    CsvSpec,
    FieldSpec,
    HttpInputSpec,
    KeySpec,
    StreamSpec,
    TimeSpec,
)
from slackwater.model.errors import DeploymentError
from slackwater.proxy.http.bodies import reader_for
from slackwater.proxy.http.tables import CSV
from slackwater.proxy.requests import UnusableBody

SPEC = StreamSpec(
    "s",
    KeySpec(column="k"),
    TimeSpec(("t",), unit="ms"),
    (FieldSpec("v", "v"),),
    csv=CsvSpec(skip_lines=3),
)
BELOW = 'k,t,v\na,1,1\n"b",2,x\nc,3,3\n'


@pytest.mark.parametrize(
    "preamble",
    [
        "Plot Title: 7\n\nSerial,1\n",
        'an "open quote\n1\r\n2\n',
        "\ufeffx\r\n\r\n,,,\r\n",
        "a\rb\rc\r",
    ],
)
def test_the_header_is_the_line_below(preamble: str, tmp_path: Path) -> None:
    data = (preamble + BELOW).encode()
    path = tmp_path / "x.csv"
    path.write_bytes(data)
    for size in (4, 1 << 20):
        pieces = list(CsvFile(SPEC, path, size).pieces())
        values = [v for piece in pieces for v in piece.arrived.values[0].tolist()]
        lines = [line for piece in pieces for line in piece.lines.tolist()]
        bad = [(one.line, one.text) for piece in pieces for one in piece.malformed]
        assert (values, lines, bad) == ([1, 3], [5, 7], [(6, '"b",2,x')])
    read = read_stream(SPEC, path)
    assert [one.values for one in read.readings] == [(1.0,), (3.0,)]
    assert (read.malformed, read.blank) == (1, 0)
    reader = reader_for(replace(SPEC, http=HttpInputSpec()), CSV, 0)
    assert reader is not None
    content = reader(data)
    assert content.parsed.values[0].tolist() == [1, 3]
    assert [bad.index for bad in content.parsed.bad] == [6]


def test_a_preamble_may_be_longer_than_a_block(tmp_path: Path) -> None:
    path = tmp_path / "x.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write("x" * 3_000_000 + "\n" + "y" * 1_000_000 + "\n\n" + BELOW)
    (piece,) = CsvFile(SPEC, path).pieces()
    assert piece.lines.tolist() == [5, 7]
    assert [one.values for one in read_stream(SPEC, path).readings] == [(1.0,), (3.0,)]


def test_a_file_that_ends_before_its_header(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("1\n2\n")
    with pytest.raises(DeploymentError, match=r"has 2 lines, and csv.skip_lines is 3"):
        CsvFile(SPEC, path)
    with pytest.raises(DeploymentError, match="has no column 'k'"):
        read_stream(SPEC, path)
    reader = reader_for(replace(SPEC, http=HttpInputSpec()), CSV, 0)
    assert reader is not None
    with pytest.raises(UnusableBody, match=r"has 2 lines"):
        reader(b"1\n2\n")


def test_a_broken_header_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('1\n2\n3\nk,"t\n')
    with pytest.raises(DeploymentError, match="line 4 is a quote that is not closed"):
        CsvFile(SPEC, path)


def test_the_file_declares_it() -> None:
    text = changed("    disorder: 1s", "    csv: {skip_lines: 3}")
    spec = parse_deployment(text, "f.yaml").deployment.streams["s"]
    assert spec.csv == CsvSpec(skip_lines=3)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("{skip_lines: -1}", "csv.skip_lines: -1 is out of range: must be at least 0"),
        ("{skip_lines: 1001}", "csv.skip_lines: 1001 is out of range: must be at most 1000"),
        ("{skip_lines: two}", "csv.skip_lines: 'two' is not a whole number"),
        ("{skiplines: 2}", "csv.skiplines: unknown field; did you mean 'skip_lines'?"),
    ],
)
def test_other_numbers_are_refused(given: str, reason: str) -> None:
    (error,) = errors(changed("    disorder: 1s", f"    csv: {given}"))
    assert error == f"f.yaml:7: streams.s.{reason}"
