"""Reader of ``number``: a message is the text of one number, ``21.5``, and nothing else.

Many devices publish each value in a topic of its own. Such a message has neither a name nor a time:
the key is a level of its topic, or its record's, and the time that of its arrival or its record.
The stream has one field, to which the number belongs.

A text is read as a cell of CSV, with the meanings that the stream declares. ``NaN``, ``inf`` and
the like are missing values and are counted, as in JSON. An empty message is malformed: on a Kafka
topic it is the deletion of a key.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.formats.columns import numbers, trimmed
from slackwater.formats.encodings import encoding_fault
from slackwater.formats.json_text import MESSAGE_BYTES_MAX
from slackwater.formats.messages import Bad, Parsed
from slackwater.model.deployment import StreamSpec
from slackwater.model.meanings import meanings_of

_NOT_FINITE: Final = re.compile(r"-?(?:nan|inf(?:inity)?)", re.ASCII | re.IGNORECASE)


class NumberReader:
    """Parser of one stream's messages."""

    def __init__(self, spec: StreamSpec) -> None:
        assert len(spec.fields) == 1, "a number is one value"
        self.spec = spec
        self._meanings = meanings_of(spec)
        self._detail = f"field {spec.fields[0].name}"

    def parse(self, messages: Sequence[bytes]) -> Parsed:
        """Parse all messages of a batch; any bytes are accepted."""
        texts = trimmed(_texts(messages))
        values, bad = numbers(texts, ".", self._meanings)
        bad |= pc.equal(texts, "").to_numpy(zero_copy_only=False)
        nans = pc.equal(pc.ascii_lower(texts), "nan").to_numpy(zero_copy_only=False)
        not_finite = int(np.count_nonzero(nans))
        for i in np.flatnonzero(bad).tolist():
            if _NOT_FINITE.fullmatch(texts[i].as_py()):
                values[i], bad[i] = math.nan, False
                not_finite += 1
        at = np.flatnonzero(~bad)
        return Parsed(
            at,
            np.zeros(len(at), np.int64),
            np.zeros(len(at), np.int32),
            [self.spec.key.value or ""],
            (values[at],),
            tuple(
                Bad(i, encoding_fault(messages[i]) or self._detail, None)
                for i in np.flatnonzero(bad).tolist()
            ),
            not_finite=not_finite,
        )

    def texts(self, message: bytes) -> Callable[[int], str]:
        """Return the text of the message: it has no elements."""
        return lambda _index: message.decode(errors="replace")


def _texts(messages: Sequence[bytes]) -> Any:
    """Return the messages as texts; one that is not UTF-8, or too long, is no number."""
    values = [m if len(m) <= MESSAGE_BYTES_MAX else b"?" for m in messages]
    try:
        return pc.cast(pa.array(values, pa.binary()), pa.string())
    except pa.ArrowInvalid:
        return pa.array([value.decode(errors="replace") for value in values], pa.string())
