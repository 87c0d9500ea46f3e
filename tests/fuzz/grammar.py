"""Generates JSON messages and CSV files by a grammar, with every kind of damage.

All of it follows from a seed. Most of an example is valid, since the readers' fast paths accept or
refuse a batch as a unit: invalid parts must be among valid ones to reach the other paths. Seeded
generators are used instead of Hypothesis: a message takes 5 us, not 500, and ten million of them
are needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from slackwater.model.deployment import CsvSpec, FieldSpec, KeySpec, StreamSpec, TimeSpec

LENGTHS: tuple[int, ...] = (
    1,
    2,
    3,
    9,
    15,
    17,
    18,
    19,
    20,
    21,
    22,
    28,
    37,
    38,
    39,
    40,
    41,
    42,
    64,
    300,
    1000,
    1001,
)
LENGTHS += (5000,)
EXPONENTS: tuple[str, ...] = (
    "0",
    "1",
    "5",
    "9",
    "10",
    "19",
    "20",
    "38",
    "39",
    "76",
    "99",
    "308",
    "400",
    "99999999",
)
EXPONENTS += ("9999999999999999999",)
FIELDS = (FieldSpec("t", "t"), FieldSpec("h", "h"))
NESTED = (FieldSpec("t", "v.t"), FieldSpec("h", "h"))
UNITS = {"ns": 10**18, "us": 10**15, "ms": 10**12, "s": 10**9}
"""A usual time by unit."""

MEANINGS: dict[str, Any] = {
    "missing": ("N/A", "-999", "x"),
    "values": (("on", 1.0), ("off", 0.0), ("true", 1.0)),
}
"""Texts and a number that stand for missing values, texts and a boolean that are values."""

JSON_STREAMS = (
    StreamSpec("us", KeySpec(field="k"), TimeSpec(field="at", unit="us"), FIELDS),
    StreamSpec("ms", KeySpec(field="k"), TimeSpec(field="at", unit="ms"), FIELDS),
    StreamSpec("s", KeySpec(field="v.k"), TimeSpec(field="v.at", unit="s"), NESTED),
    StreamSpec("iso", KeySpec(value="one"), TimeSpec(field="at", unit="iso"), FIELDS),
    StreamSpec("ns", KeySpec(field="k"), TimeSpec(field="at", unit="ns"), FIELDS),
    StreamSpec("date", KeySpec(field="k"), TimeSpec(field="at", format="%d/%m/%Y %H:%M"), FIELDS),
)
CSV_STREAMS = (
    StreamSpec("us", KeySpec(column="k"), TimeSpec(("at",), unit="us"), FIELDS),
    StreamSpec("s", KeySpec(column="k"), TimeSpec(("at",), unit="s"), FIELDS),
    StreamSpec("iso", KeySpec(value="one"), TimeSpec(("at",), unit="iso"), FIELDS),
    StreamSpec(
        "date",
        KeySpec(column="k"),
        TimeSpec(("at", "h2"), format="%d/%m/%Y %M"),
        (FieldSpec("t", "t"), FieldSpec("h", "h2")),
        CsvSpec(";", ","),
    ),
    StreamSpec("meanings", KeySpec(column="k"), TimeSpec(("at",), unit="s"), FIELDS, **MEANINGS),
    StreamSpec(
        "below",
        KeySpec(column="k"),
        TimeSpec(("at",), unit="us"),
        FIELDS,
        CsvSpec(decimal=",", delimiter=";", skip_lines=3),
        missing=("-9,5", "-999"),
    ),
    StreamSpec(
        "joined", KeySpec(columns=("k", "t"), join="."), TimeSpec(("at",), unit="s"), FIELDS
    ),
    StreamSpec(
        "zone",
        KeySpec(column="k"),
        TimeSpec(("at",), format="%d/%m/%Y %H:%M", zone="Europe/Berlin", fold="second"),
        FIELDS,
    ),
)


# Text.


def digits(r: Random) -> str:
    """Return digits; lengths include every limit at which the result changes."""
    n = r.choice(LENGTHS) if r.random() < 0.3 else r.randint(1, 13)
    kind = r.random()
    if kind < 0.2:
        return "0" * n
    if kind < 0.4:
        return "9" * n
    return "".join(r.choices("0123456789", k=n)) if n < 50 else str(r.randint(1, 9)) * n


def number(r: Random) -> str:
    """Return a number by JSON's grammar, sometimes beyond it."""
    text = r.choice(("", "", "", "-", "+")) + digits(r)
    if r.random() < 0.5:
        text += "." + digits(r)
    if r.random() < 0.3:
        text += r.choice("eE") + r.choice(("", "-", "+")) + r.choice(EXPONENTS)
    return text


ODD_TEXTS = (
    "", " ", "nan", "NaN", "null", "inf", "-inf", "Infinity", "0x1F", "1_0", "1,5", "x", "-", ".",
    ".5", "5.", "+7", "--1", "1e", "\u0661\u0662", "\u00a01", "1\u2003", "\x1c", "\x85", "\x0b1",
    "\x00", "1\x00", "\ufeff1", "\u200b", "\u180e", "\ud800", "a\udfffb", "\U0001f600", "0" * 300,
    "1" * 1_000, "1" * 1_001, "\r", "1\n2",
    "2015-07-10", "2015-07-10T24:30:00", "2015-02-30", "2015-07-10 14:24:00.1234569", "2015-W01-1",
    "9999-12-31T23:59:59.999999-23:59", "0001-01-01T00:00:00+23:59", "10/03/2004 18:00",
    "31/02/2004 18:00", "10/03/0000 18:00", "20150710", "T", "00:00", "1e3", "253402300800",
)  # fmt: skip
LONG_TEXTS = ("k" * 65_536, "k" * 65_537, "\U0001f600" * 65_536, "\U0001f600" * 65_537)


def text(r: Random) -> str:
    """Return a number's text, or other values found in its place."""
    kind = r.random()
    return number(r) if kind < 0.5 else r.choice(ODD_TEXTS if kind < 0.99 else LONG_TEXTS)


def time_text(r: Random, unit: str) -> str:
    """Return a time that may be valid."""
    match unit:
        case "ns" | "us" | "ms" | "s":
            complete = UNITS[unit] + r.randrange(10**8)
            fraction = r.choice(("", "", ".5", ".000001", ".9999999", "." + digits(r)))
            return f"{complete}{fraction}" if r.random() < 0.9 else number(r)
        case "iso":
            moment = r.choice(("2015-07-10T14:24:00", "2015-07-10 14:24:00.25"))
            return moment + r.choice(("", "Z", "+02:00"))
        case _:
            return f"{r.randint(1, 32):02}/{r.randint(1, 13):02}/{r.randint(1990, 2030)}"


# JSON.


def nested(r: Random, depth: int) -> str:
    """Return nested arrays and objects."""
    opens = [r.choice(("[", '{"a":', '[0,{"b":')) for _ in range(depth)]
    closes = "".join("]" if o == "[" else "}" if o[0] == "{" else "}]" for o in reversed(opens))
    return "".join(opens) + "1" + closes[: r.choice((None, None, None, -1))]


def value(r: Random) -> str:
    """Return any JSON value."""
    kind = r.random()
    if kind < 0.35:
        return number(r)
    if kind < 0.6:
        return json.dumps(text(r), ensure_ascii=r.random() < 0.5)
    if kind < 0.8:
        return r.choice(("null", "true", "false", "NaN", "-Infinity", "[]", "{}", "[1]", '"'))
    return nested(
        r, r.choice((1, 2, 2, 3, 30, 62, 63, 64, 65, 1000) if r.random() < 0.1 else (1, 2, 3))
    )


def _object(pairs: Sequence[tuple[str, str]], r: Random) -> str:
    blank = r.choice(("", "", " ", "\t", "\n")) if r.random() < 0.1 else ""
    return "{" + ("," + blank).join(f"{json.dumps(k)}:{blank}{v}" for k, v in pairs) + "}"


def _message(r: Random, spec: StreamSpec, some: Callable[[str], str]) -> bytes:
    unit = spec.time.unit or "date"
    at = time_text(r, unit)
    if unit in ("iso", "date"):
        at = json.dumps(
            at if unit == "iso" else at + f" {r.randint(0, 24):02}:{r.randint(0, 59):02}"
        )
    parts = {"k": f'"m{r.randrange(50)}"', "at": at, "t": f"{r.random() * 40:.2f}", "h": "null"}
    parts = {name: some(value) for name, value in parts.items()}
    if spec.name == "s":
        inner = _object([(n, parts[n]) for n in ("k", "at", "t")], r)
        pairs = [("v", inner), ("h", parts["h"])]
    else:
        pairs = list(parts.items())
    if some("") or r.random() < 0.05:
        pairs.insert(r.randrange(len(pairs) + 1), ("more", some("") or value(r)))
    return _object(pairs, r).encode(errors="surrogatepass")


def good_message(r: Random, spec: StreamSpec, *, plain: bool) -> bytes:
    """Return a reading like its neighbours; ``plain``: without fractions of the unit."""
    n = r.randrange(10**6)
    match spec.time.unit or "date":
        case "ns" | "us" | "ms" | "s" as unit:
            at = str(UNITS[unit] + n) if plain else (f"{10**9 + n}.{n:06}")
        case "iso":
            at = f'"2015-07-10T14:{n % 60:02}:00"'
        case _:
            at = f'"{n % 28 + 1:02}/07/2015 14:{n % 60:02}"'
    t = n % 4000 / 100
    if spec.name == "s":
        return f'{{"v":{{"k":"m{n % 50}","at":{at},"t":{t}}},"h":{t}}}'.encode()
    return f'{{"k":"m{n % 50}","at":{at},"t":{t},"h":{n % 90}}}'.encode()


COMPLETE = (
    b"", b" ", b"{", b"}", b"nonsense", b"[1]", b"5", b"null", b'"x"', b"{}", b'{"boundary": 12}',
    b'{"boundary": 1e-99999999}', b'{"boundary": "x"}', b'{"boundary": [1]}', b"\xff\xfe",
    '{"k":"a","at":1,"t":1,"h":1}'.encode("utf-16"), '{"k":"a","at":1}'.encode("utf-16-le"),
    b'\xef\xbb\xbf{"k":"a","at":1}', b'{"k":"\xff","at":1000000000}', b'{"z":"\xc3\x28","k":"a"}',
    b'{"k":"a","at":5}{"k":"b","at":6}', b'{"k":"a"}{"k":"b"}\0{"x"}', b'{"k":"a",\n"at":5}',
    b'{"a":[{"b":1}', b'{"b":2}]}', b'{"k":"a","k":"b","at":1}', b'{"k":"a","at":1}\x00',
    b'{"k":"a","at":1} ', b' {"k":"a","at":1}', b'{"k":"a\\u0000","at":1,"t":1,"h":1}',
    b'{"k":"' + b"[" * 2_000 + b'","at":1000000000,"t":1,"h":1}', b'{"k":"a","at":1,}', b"{'k':1}",
    b'{"k":"a","at":01,"t":1}', b'{"k":"a","at":1,"t":.5}', b'{"k":"a","at":1,"t":5.}',
)  # fmt: skip
HUGE = (b'{"k":"' + b"m" * 1_100_000 + b'","at":1}', b"[" * 100_000, b'{"a":' * 50_000)


def bad_message(r: Random, spec: StreamSpec) -> bytes:
    """Return a message that may be anything."""
    kind = r.random()
    if kind < 0.25:
        return r.choice(COMPLETE if kind > 0.0005 else HUGE)
    if kind < 0.75:
        return _message(r, spec, lambda given: value(r) if r.random() < 0.3 else given)
    return damaged(r, _message(r, spec, lambda given: given))


def damaged(r: Random, data: bytes) -> bytes:
    """Insert, remove or change a byte, truncate, or repeat a piece."""
    at = r.randrange(len(data) + 1)
    match r.randrange(5):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + bytes([r.randrange(256)]) + data[at:]
        case 2:
            return data[:at] + bytes([r.randrange(256)]) + data[at + 1 :]
        case 3:
            return data[:at] + data[at + 1 :]
        case _:
            other = r.randrange(len(data) + 1)
            return data[:at] + data[min(at, other) : max(at, other)] + data[at:]


@dataclass(frozen=True)
class Messages:
    """One batch of a topic, and the stream to which it belongs."""

    spec: StreamSpec
    messages: list[bytes]


def messages(seed: int, n: int = 1_000) -> Messages:
    """Return a batch with no, few, many or only unusual messages."""
    r = Random(seed)
    spec, plain = r.choice(JSON_STREAMS), r.random() < 0.5
    odd = r.choice((0.0, 0.001, 0.01, 0.2, 1.0))
    return Messages(
        spec,
        [
            bad_message(r, spec) if r.random() < odd else good_message(r, spec, plain=plain)
            for _ in range(n)
        ],
    )


# CSV.


CELLS = (
    "", " ", "1", "2.5", " 3 ", "\t5", '"6"', '"7,8"', '"7;8"', '"9\n9"', '"1""0"', '"', '""',
    '"""', '3"', '"4', '"x"y', 'x"y"', "\r", "\x00", "\u00a0", "\xe4", '"a\r\nb"', '"a\rb"', "'",
    "\x1c", "\x85", "N/A", "n/a ", "-999", "-999.0", "ON", "off", "TRUE", "false", "-9,5",
)  # fmt: skip
BEFORE = ("", "# of the logger", 'a "quote', ",,,", "k,at,t,h", '"', "x" * 300)
"""Lines before a header."""
ENDS = ("\n", "\n", "\n", "\r\n", "\r", "\n\r", "\r\r\n", "\x0b", "\u2028")


def _cell(r: Random, given: str) -> str:
    kind = r.random()
    if kind < 0.4:
        return given
    if kind < 0.8:
        return r.choice(CELLS)
    cell = text(r)
    return '"' + cell.replace('"', '""') + '"' if r.random() < 0.2 else cell


def _good_line(r: Random, spec: StreamSpec) -> list[str]:
    n = r.randrange(10**6)
    match spec.time.unit or "date":
        case "us":
            at = str(10**15 + n)
        case "s":
            at = f"{10**9 + n}.{n:06}"
        case "iso":
            at = f"2015-07-10 14:{n % 60:02}:00"
        case _ if spec.time.zone:
            day = r.choice(("01/07/2015", "29/03/2015", "25/10/2015"))
            at = f"{day} {n % 5:02}:{n % 60:02}"
        case _:
            at = f"{n % 28 + 1:02}/07/2015"
    point = spec.csv.decimal
    return [f"m{n % 50}", at, f"{n % 4000 / 100}".replace(".", point), f"{n % 60:02}"]


def bad_line(r: Random, spec: StreamSpec) -> str:
    """Return a line that may be anything, or no line at all."""
    kind = r.random()
    if kind < 0.15:
        return r.choice(
            ("", ",,,", " , ,", ";;;", '""', "\x1c,\x1c,\x1c,\x1c", "\u00a0,,,", "\x00")
        )
    cells = [_cell(r, cell) for cell in _good_line(r, spec)]
    if kind < 0.3:
        cells = cells[: r.randint(0, 3)]
    elif kind < 0.4:
        cells += r.choices(CELLS, k=r.randint(1, 3))
    elif kind < 0.402:
        cells.append("x" * r.choice((131_071, 131_073, 1_048_560, 1_048_577, 2_000_000)))
    return spec.csv.delimiter.join(cells)


@dataclass(frozen=True)
class File:
    """A file's bytes, its stream, and the size of the pieces in which to read it."""

    spec: StreamSpec
    data: bytes
    piece_bytes: int


def file(seed: int, n: int = 1_000) -> File:
    """Return a file with no, few, many or only unusual lines, or with changed bytes."""
    r = Random(seed)
    spec = r.choice(CSV_STREAMS)
    odd = r.choice((0.0, 0.001, 0.01, 0.2, 1.0))
    end, mixed = r.choice(("\n", "\n", "\r\n", "\r")), r.random() < 0.2
    header = spec.csv.delimiter.join(("k", "at", "t", "h2" if spec.name == "date" else "h"))
    lines = [header]
    for _ in range(n):
        bad = r.random() < odd
        lines.append(bad_line(r, spec) if bad else spec.csv.delimiter.join(_good_line(r, spec)))
    text = "".join(line + (r.choice(ENDS) if mixed else end) for line in lines[1:])
    if r.random() < 0.3:
        text = text[: -len(end)]
    data = text.encode("utf-8" if r.random() < 0.9 else "latin-1", errors="replace")
    for _ in range(r.choice((0, 0, 1, 5)) if odd else 0):
        data = damaged(r, data)
    bom = b"\xef\xbb\xbf" if r.random() < 0.1 else b""
    size = 64 if r.random() < 0.02 else r.choice((3_000, 10_000, 300_000))
    before = "".join(r.choice(BEFORE) + end for _ in range(spec.csv.skip_lines))
    return File(spec, bom + (before + header + end).encode() + data, size)
