"""Cost of reading a message by its content: parsing alone, no broker, on one core.

    python -m bench.json_parse [MESSAGES]

With the scanner, from memory addresses as returned by the usual client, and without it. Without it
each batch is checked before pyarrow parses it, and the cost of the check depends on the messages:
an ``e`` between digits may be an exponent, a bracket may be the sixty-fifth. Prints the best of
twenty rounds.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, Literal

from slackwater.formats.json_input import JsonReader
from slackwater.formats.messages import Messages, Parsed
from slackwater.model.deployment import FieldSpec, KeySpec, StreamSpec, TimeSpec

ROUNDS: Final = 20
PAD: Final = b"x" * 300
SHAPES: Final[dict[str, tuple[Literal["s", "ms"], str, Callable[[int], bytes]]]] = {
    "whole times": (
        "ms",
        "t",
        lambda i: b'{"mote":"m%d","at":%d,"t":%.2f}' % (i % 1000, _ms(i), _t(i)),
    ),
    "fractional times": (
        "s",
        "t",
        lambda i: b'{"mote":"m%d","at":%s,"t":%.2f}' % (i % 1000, _s(i), _t(i)),
    ),
    "fractional times, hexadecimal keys": (
        "s",
        "t",
        lambda i: b'{"mote":"%s","at":%s,"t":%.2f}' % (_hex(i % 1000), _s(i), _t(i)),
    ),
    "fractional times, values with exponents": (
        "s",
        "t",
        lambda i: b'{"mote":"m%d","at":%s,"t":%.2fe-05}' % (i % 1000, _s(i), _t(i)),
    ),
    "nested fields, 400 bytes": (
        "ms",
        "data.env.t",
        lambda i: (
            b'{"mote":"m%d","at":%d,"data":{"env":{"t":%.2f,"h":%d},"pad":{"a":"%s"}}}'
            % (i % 1000, _ms(i), _t(i), i % 90, PAD)
        ),
    ),
    "arrays in other fields": (
        "ms",
        "t",
        lambda i: b'{"mote":"m%d","at":%d,"t":%.2f,"o":[[1,2],[3,4]]}' % (i % 1000, _ms(i), _t(i)),
    ),
}


def main() -> None:
    """Print a table, one line per shape."""
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    print("| messages with | bytes | scanner, ns a reading | pyarrow, ns a reading |")
    print("|---|---|---|---|")
    for name, (unit, field, make) in SHAPES.items():
        batch = [make(i) for i in range(messages)]
        spec = StreamSpec(
            "lab", KeySpec(field="mote"), TimeSpec(field="at", unit=unit), (FieldSpec("t", field),)
        )
        reader, places = JsonReader(spec), Messages.of(batch)
        ways = ((reader.parse, places), (reader.parse_without_scanner, batch))
        best = [min(_seconds(parse, some) for _ in range(ROUNDS)) for parse, some in ways]
        size = sum(map(len, batch)) / messages
        print(f"| {name} | {size:.0f} |", *(f"{s / messages * 1e9:.0f} |" for s in best))


def _seconds(parse: Callable[[Sequence[bytes]], Parsed], batch: Sequence[bytes]) -> float:
    began = time.process_time()
    parsed = parse(batch)
    spent = time.process_time() - began
    assert len(parsed.stimes) == len(batch), "a reading was lost"
    return spent


def _ms(i: int) -> int:
    return 1458031648545 + i // 100


def _s(i: int) -> bytes:
    return b"%d.%03d" % divmod(_ms(i), 1000)


def _t(i: int) -> float:
    return 20 + i % 700 / 100


def _hex(i: int) -> bytes:
    return hashlib.sha256(b"%d" % i).hexdigest()[:32].encode()


if __name__ == "__main__":
    main()
