"""Messages at the boundary between those that the scanner reads and those that it leaves.

``grammar.py`` generates input that pyarrow must not receive. This module generates the difficult
cases of a byte scanner: doubles between two neighbours, names that are similar to the wanted ones
or in another order, blanks, escapes, UTF-8 at its limits, times at theirs.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from random import Random

from tests.fuzz import grammar
from tests.fuzz.grammar import Messages, damaged, nested

from slackwater.model.deployment import FieldSpec, KeySpec, StreamSpec, TimeSpec

FLAT = (FieldSpec("t", "t"), FieldSpec("temperature", "temperature"))
DEEP = (FieldSpec("t", "a.t"), FieldSpec("h", "a.b.h"), FieldSpec("u", "u"))
STREAMS = (
    StreamSpec("us", KeySpec(field="k"), TimeSpec(field="at", unit="us"), FLAT),
    StreamSpec("ms", KeySpec(field="k"), TimeSpec(field="at", unit="ms"), FLAT),
    StreamSpec("s", KeySpec(field="a.k"), TimeSpec(field="a.b.at", unit="s"), DEEP),
    StreamSpec("iso", KeySpec(value="one"), TimeSpec(field="at", unit="iso"), FLAT),
    StreamSpec("deep-iso", KeySpec(field="a.b.k"), TimeSpec(field="a.at", unit="iso"), DEEP),
    StreamSpec("ns", KeySpec(field="k"), TimeSpec(field="at", unit="ns"), FLAT),
    StreamSpec(
        "meanings", KeySpec(field="k"), TimeSpec(field="at", unit="ms"), FLAT, **grammar.MEANINGS
    ),
    StreamSpec(
        "joined", KeySpec(fields=("k", "u"), join="1"), TimeSpec(field="at", unit="s"), FLAT
    ),
    StreamSpec(
        "joined-times",
        KeySpec(field="k"),
        TimeSpec(fields=("at", "u"), join="", unit="iso"),
        FLAT,
    ),
    StreamSpec(
        "zone",
        KeySpec(field="k"),
        TimeSpec(field="at", unit="iso", zone="America/New_York", fold="first"),
        FLAT,
    ),
    StreamSpec(
        "paths",
        KeySpec(field="a.k"),
        TimeSpec(field='"a"."b".at', unit="s"),
        (FieldSpec("t", '"a".t'), FieldSpec("h", "a.b.h")),
    ),
)
BORDERS = (
    "0", "-0", "-0.0", "0e5", "-0e0", "1e22", "1e23", "8.5e22", "9007199254740993", "1e-22",
    "1e-23",
    "9007199254740993.0", "18446744073709551615", "18446744073709551616", "18446744073709551616.5",
    "9999999999999999999", "99999999999999999999", "5e-324", "2.2250738585072014e-308", "1e-300",
    "2.2250738585072011e-308", "1.7976931348623157e308", "1.7976931348623159e308", "1e309", "1e400",
    "0." + "0" * 997 + "1", "0." + "0" * 998 + "1", "0." + "0" * 999 + "1", "0." + "0" * 2_000,
    "1" * 19 + "e5", "0.1e1", "1e0000001", "1e000000001", "1e+", "1E-05", "1.", ".5", "01",
    "-", "+1",
    "-01", "1_0", "0x10", "1e5.5", "NaN", "Infinity", "-Infinity", "nan", "-nan", "-inf", "INF",
    "infinity", "-NaN", "nano", "infi", "infinityy", "--nan", "+nan", "1nan", "nan1", "na", "in",
    "253402300799999", "-9e-7",
)  # fmt: skip
PARTS = (
    "a", "s1", "é", "ß", "漢", "\u00a0", "\u3000", "\u2009", "\u0085",
    "\U0001f600", "\x7f", "/", " ", "\u0800", "\uffff", "\x1f", "\n",
    "\\n", '\\"', "\\u0041", "\\ud83d\\ude00", "\\ud800", "\\x", "\\/", "\\u00e", "\\\\",
)  # fmt: skip
PLACE = "\ue000"
"""In a string: bytes follow that may be invalid UTF-8."""
BYTES = (
    b"\x80", b"\xc0\x80", b"\xc1\xbf", b"\xc2\x80", b"\xdf\xbf", b"\xe0\x9f\xbf", b"\xe0\xa0\x80",
    b"\xed\x9f\xbf", b"\xed\xa0\x80", b"\xef\xbf\xbf", b"\xf0\x8f\xbf\xbf", b"\xf0\x90\x80\x80",
    b"\xf4\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xc3", b"\xe2\x82", b"\xff",
)  # fmt: skip
DATES = (
    "2024-03-10", "2024-11-03", "2015-03-29", "2015-10-25",  # clocks change
    "2024-02-29", "2023-02-29", "1900-02-29", "2000-02-29", "1969-12-31", "0001-01-01",
    "9999-12-31",
    "0000-01-01", "2023-13-01", "2023-00-01", "2023-11-31", "2023-12-00", "2000-2-1", "20240101",
    "2024-W01-1", "2015-07-10",
)  # fmt: skip
CLOCKS = (
    "01:30:00", "02:30", "02:00:00", "01:59:59.999999", "03:00:00",
    "12:34", "23:59:59", "24:00:00", "00:00:60", "07:08:09.5", "07:08:09.123456",
    "07:08:09.1234567",
    "07:08:09,12", "07:08:09.", "7:08", "070809", "07:60", "07", "07:08:0", "23:59:59.999999",
)  # fmt: skip
ZONES = ("", "", "Z", "z", "+01:00", "-09:30", "+0100", "+24:00", "-00:00", " ", "+01:00:30", "+01")
ODD_VALUES = (
    "null", '"nan"', '""', '" 1.5 "', "true", "[1]", "{}", '{"a": 1}', '"x"', '"N/A"', '"n/a "',
    "-999", "-999.0", '"-9.99e2"', '"ON"', '"off"', "false", "-inf", "nan",
)  # fmt: skip
PART_TEXTS = ('"x"', '" x "', '"1"', "17", "2.5", '""', "null", '"+02:00"', '"Z"', '["x", "y"]')
"""The second part of a key or a time."""
NAMES = (
    "k",
    "at",
    "t",
    "temperature",
    "temperatur",
    "temperatures",
    "a",
    "b",
    "u",
    "h",
    "",
    "boundary",
)


def number(r: Random) -> str:
    """Return a number, usually close to a double."""
    kind = r.randrange(12)
    if kind == 0:
        return r.choice(BORDERS)
    if kind == 1:  # exactly between two doubles, or next to it
        between = Decimal(2 * (r.getrandbits(52) | 1 << 52) + 1) * Decimal(2) ** r.randint(-4, 4)
        return f"{between + r.choice((0, 0, 1, -1)):f}"
    if kind == 2:  # any double
        bits = r.getrandbits(64) & ~(0x7FF << 52) | r.randrange(2047) << 52
        return repr(struct.unpack("d", struct.pack("Q", bits))[0])
    if kind == 3:
        return f"{r.choice(('', '-'))}{r.getrandbits(r.randint(1, 70))}"
    if kind == 4:
        return f"{r.getrandbits(r.randint(1, 62))}.{_digits(r, 20)}"
    if kind == 5:
        return f"{r.getrandbits(r.randint(1, 64))}e{r.randint(-330, 310)}"
    if kind == 6:
        return f"{r.randrange(10)}.{_digits(r, 18)}{r.choice('eE')}{r.randint(-25, 25)}"
    if kind == 7:
        return f"0.{'0' * r.randrange(30)}{_digits(r, 18)}"
    return repr(r.gauss(20, 5)) if kind < 10 else f"{r.gauss(20, 50):.3f}"


def _digits(r: Random, most: int) -> str:
    return "".join(r.choices("0123456789", k=r.randint(1, most)))


def string(r: Random) -> str:
    """Return a string in quotes."""
    kind = r.random()
    if kind < 0.5:
        return f'"s{r.randrange(300)}"'
    if kind < 0.6:
        return f'"a{PLACE}z"'
    parts = r.choices(PARTS[:10] if r.random() < 0.7 else PARTS, k=r.randrange(14))
    return f'"{"".join(parts)}"'


def time(r: Random, unit: str | None) -> str:
    """Return a time in the stream's unit, sometimes in another form."""
    kind = r.randrange(10)
    if kind == 0:
        return number(r)
    if unit == "iso" or kind == 1:
        usual = r.random() < 0.5
        date = f"{r.randint(1970, 2100)}-{r.randint(1, 12):02}-{r.randint(1, 28):02}"
        clock = f"{r.randrange(24):02}:{r.randrange(60):02}:{r.randrange(60):02}.{_digits(r, 6)}"
        text = (
            (date if usual else r.choice(DATES))
            + r.choice("TTT t_")
            + (clock if usual else r.choice(CLOCKS))
        )
        return '"' + text + r.choice(ZONES) + '"'
    complete = r.choice(("", "", "", "-")) + str(
        r.randrange(10 ** r.choice((9, 10, 12, 13, 15, 16, 18)))
    )
    text = complete + r.choice(("", "", "." + _digits(r, 9), "." + "0" * r.randrange(45) + "1"))
    return f'"{r.choice(("", "", " ", "+"))}{text}"' if kind == 2 else text


def _any(r: Random, depth: int = 0) -> str:
    kind = r.randrange(9)
    if kind == 0 and depth < 4:
        return "[" + ",".join(_blank(r) + _any(r, depth + 1) for _ in range(r.randrange(4))) + "]"
    if kind == 1 and depth < 4:
        return _members([(r.choice(NAMES), _any(r, depth + 1)) for _ in range(r.randrange(4))], r)
    if kind == 2:
        return _deep(r, r.choice((60, 61, 62, 63, 64, 65))) if r.random() < 0.3 else nested(r, 3)
    if kind < 5:
        return string(r)
    return r.choice(("true", "false", "null", "tru", "nul")) if kind == 5 else number(r)


def _deep(r: Random, depth: int) -> str:
    opens = r.choices(("[", '{"a":'), k=depth)
    return "".join(opens) + "1" + "".join("]" if o == "[" else "}" for o in reversed(opens))


def _blank(r: Random) -> str:
    return r.choice((" ", "\n", "\t", "  ", "\r\n", "\f")) if r.random() < 0.05 else ""


def _members(members: list[tuple[str, str]], r: Random) -> str:
    parts = (f'{_blank(r)}"{n}"{_blank(r)}:{_blank(r)}{v}{_blank(r)}' for n, v in members)
    return "{" + _blank(r) + ",".join(parts) + "}"


def _shuffled(members: list[tuple[str, str]], r: Random) -> list[tuple[str, str]]:
    kind = r.randrange(12)
    if kind == 0:
        r.shuffle(members)
    elif kind == 1:
        members.pop(r.randrange(len(members)))
    elif kind == 2:
        members.insert(r.randrange(len(members) + 1), r.choice(members))
    while r.random() < 0.2:
        name = r.choice((*NAMES, "va\\u006c", "\\u0061t", "é"))
        members.insert(r.randrange(len(members) + 1), (name, _any(r)))
    return members


def _usual_time(r: Random, unit: str | None) -> str:
    if unit == "iso":
        date = f"{r.randint(1970, 2100)}-{r.randint(1, 12):02}-{r.randint(1, 28):02}"
        clock = f"{r.randrange(24):02}:{r.randrange(60):02}:{r.randrange(60):02}"
        return f'"{date}T{clock}{r.choice(("", ".25", "Z", "+01:00"))}"'
    units = {"s": 1, "ms": 1_000, "us": 10**6, "ns": 10**9}
    return str(units[unit or "us"] * r.randrange(2 * 10**9))


def message(r: Random, spec: StreamSpec) -> bytes:
    """Return one message of a stream, with no, some or only unusual parts."""
    odd = r.choice((0.0, 0.1, 0.1, 0.2, 1.0))

    def is_odd() -> bool:
        return r.random() < odd

    key, at = f'"s{r.randrange(300)}"', _usual_time(r, spec.time.unit)
    if is_odd():
        key = string(r) if r.random() < 0.8 else r.choice((str(r.randint(-5, 900)), number(r)))
    if is_odd():
        at = time(r, spec.time.unit)
    values = [number(r), repr(r.gauss(20, 5)), f"{r.gauss(20, 50):.3f}"]
    for i in range(3):
        if is_odd():
            values[i] = r.choice((*ODD_VALUES, f'"{number(r)}"', number(r)))

    return _written(r, spec, key, at, values, is_odd)


def _written(
    r: Random, spec: StreamSpec, key: str, at: str, values: list[str], is_odd: Callable[[], bool]
) -> bytes:
    """Return a message with these texts as the key, the time and the values."""

    def members(*some: tuple[str, str]) -> list[tuple[str, str]]:
        return _shuffled(list(some), r) if is_odd() else list(some)

    if spec.name in ("s", "deep-iso", "paths"):
        both = ("at", at), ("k", key)
        first, second = both[::-1] if spec.name == "deep-iso" else both
        inner = _members(members(first, ("h", values[0])), r)
        outer = members(("a", _members(members(second, ("b", inner), ("t", values[1])), r)))
        outer += [("u", values[2])]
    else:
        outer = members(("k", key), ("at", at), ("t", values[0]), ("temperature", values[1]))
        if spec.name.startswith("joined"):
            outer.append(("u", r.choice(PART_TEXTS)))
    data = (_blank(r) + _members(outer, r) + _blank(r)).encode(errors="surrogatepass")
    data = data.replace(PLACE.encode(), r.choice(BYTES))
    if is_odd() and r.random() < 0.1:
        cut = r.randrange(len(data) + 1)
        data = data[:cut] + r.choice(BYTES) + data[cut:]
    return damaged(r, data) if is_odd() and r.random() < 0.5 else data


def columns_message(r: Random, spec: StreamSpec) -> bytes:
    """Return one message of columns, most of which have equal lengths."""
    odd = r.choice((0.0, 0.02, 0.02, 0.1, 0.5))
    rows = r.choice((0, 1, 2, 2, 3, 5, 8))

    def is_odd() -> bool:
        return r.random() < odd

    def column(usual: Callable[[], str], unusual: Callable[[], str]) -> str:
        if r.random() < 0.15:
            return unusual() if is_odd() else usual()
        size = r.randrange(9) if is_odd() else rows
        texts = (unusual() if is_odd() else usual() for _ in range(size))
        return "[" + ",".join(f"{_blank(r)}{text}{_blank(r)}" for text in texts) + "]"

    def a_value() -> str:
        usual = repr(r.gauss(20, 5)), f"{r.gauss(20, 50):.3f}", str(r.randrange(50)), "null"
        return r.choice(usual) if r.random() < 0.95 else number(r)

    unit = spec.time.unit
    key = column(
        lambda: f'"s{r.randrange(300)}"',
        lambda: string(r) if r.random() < 0.8 else r.choice((str(r.randint(-5, 900)), number(r))),
    )
    at = column(lambda: _usual_time(r, unit), lambda: time(r, unit))
    values = [
        column(a_value, lambda: r.choice((*ODD_VALUES, f'"{number(r)}"', _any(r))))
        for _ in range(3)
    ]
    return _written(r, spec, key, at, values, is_odd)


def messages(seed: int, n: int = 1_000) -> Messages:
    """Return a batch of messages."""
    r = Random(seed)
    spec = STREAMS[seed % len(STREAMS)]
    return Messages(spec, [message(r, spec) for _ in range(n)])


def columns(seed: int, n: int = 1_000) -> Messages:
    """Return a batch of messages of columns."""
    r = Random(seed)
    spec = STREAMS[seed % len(STREAMS)]
    return Messages(spec, [columns_message(r, spec) for _ in range(n)])
