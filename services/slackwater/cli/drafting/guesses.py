"""Guesses what a stream declares from a sample: its key, its fields, and what stands for nothing.

Every guess has a reason, which the draft has as a comment. A guess may be wrong: it is chosen so
that the draft is valid and an error in it is visible.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from slackwater.cli.drafting.samples import ReadingSample
from slackwater.cli.drafting.times import GuessedTime, guess_time
from slackwater.formats.columns import number_of
from slackwater.model.errors import UsageError
from slackwater.primitives.expression_text import KEY, RESERVED_WORDS

FIELDS_MAX: Final = 100
FIELD_CHARS_MAX: Final = 40
TEXTS_MAX: Final = 8
"""Texts between the numbers of a field, at most; more make it a text."""
NUMERIC_MIN: Final = 0.5
"""Least share of numbers among the values of a field."""
DISTINCT_MIN: Final = 0.99
BOOLEANS: Final[Mapping[str, int]] = {
    "true": 1, "false": 0, "on": 1, "off": 0, "open": 1, "closed": 0, "yes": 1, "no": 0,
}  # fmt: skip
SENTINELS: Final = (-200.0, -999.0, -999.9, -9999.0, -99.0, -99.9, 65535.0, 9999.0, 99999.0)
"""Numbers that loggers write for a missing value, if they lie far from all others."""
_KEY: Final = re.compile(
    r"(?i)(?:^|[^a-z])(?:id|ids|key|node|mote|sensor|device|station|stationen?|stations|room|raum"
    r"|meter|pump|unit|entity|name|serial|serialno|mac|tag|location|site|machine|host|hostname|channel"
    r"|probe|asset|thing|source|place|standort|ort|capteur|sensore|estacion|f.hler|fuehler|messstelle"
    r"|ger.t|geraet|maschine)(?:$|[^a-z])"
    r"|_id$|[a-z]Id$|serial"
)
_ID: Final = re.compile(r"(?i)(?:^|_)id$|[a-z]Id$|serial|(?:^|_)mac$")
_ROW_NUMBER: Final = re.compile(r"(?i)#|row|nr|no|index|entry_id|seq|id")
_PLACE: Final = re.compile(r"(?i)lat|lon|lng|latitude|longitude")
_STREAM: Final = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class DraftedStream:
    """What is guessed of a stream. ``left_out``: (name, why) of columns that are no field."""

    name: str
    sample: ReadingSample
    key: str | None
    key_count: int
    time: GuessedTime | None
    fields: Mapping[str, str]
    missing: Sequence[str | float]
    values: Mapping[str, int]
    left_out: Sequence[tuple[str, str]]
    texts: Mapping[str, Sequence[str]]

    @property
    def is_of_files(self) -> bool:
        """Whether the stream is read from files: readings of JSON without a time are posted."""
        return self.sample.topic is None and self.time is not None


def stream_name(text: str) -> str:
    """Return a valid name of a stream from that of a file or topic."""
    plain = unicodedata.normalize("NFKD", text.lower()).encode("ascii", "ignore").decode()
    name = _STREAM.sub("-", plain).strip("-")[:50].rstrip("-")
    return name if name[:1].isalpha() else f"stream-{name}".rstrip("-")


def field_name(source: str, taken: Sequence[str]) -> str:
    """Return a name that an expression can use without quotes, and that is not yet used."""
    plain = unicodedata.normalize("NFKD", source).encode("ascii", "ignore").decode()
    name = re.sub(r"\W+", "_", plain).strip("_")[:FIELD_CHARS_MAX].rstrip("_")
    if not name or name[0].isdigit():
        name = f"field_{name}".rstrip("_")
    if name.upper() in RESERVED_WORDS or name == KEY:
        name = f"{name}_"
    found, n = name, 2
    while found in taken:
        found, n = f"{name}_{n}", n + 1
    return found


def draft_stream(sample: ReadingSample) -> DraftedStream:
    """Return the guesses for a sample.

    Raises:
        UsageError: it has no reading, no numbers, or (of a file) no time.
    """
    if not sample.rows:
        raise UsageError(f"{sample.origin}: has no reading")
    columns = {name: texts for name, texts in sample.columns.items() if any(texts)}
    time = guess_time(columns)
    if time is None and sample.format == "csv":
        names = ", ".join(sample.columns)
        raise UsageError(f"{sample.origin}: none of its columns is a time: {names}")
    taken = set() if time is None else set(time.columns)
    rest = {name: texts for name, texts in columns.items() if name not in taken}
    key = _key(rest, sample, time)
    fields: dict[str, str] = {}
    missing: list[str | float] = []
    values: dict[str, int] = {}
    left_out: list[tuple[str, str]] = []
    texts_of: dict[str, list[str]] = {}
    for name, texts in rest.items():
        if name == key:
            continue
        found = _field(name, texts, sample.dialect.decimal)
        if isinstance(found, str):
            left_out.append((name, found))
            if found == "texts":
                texts_of[name] = list(dict.fromkeys(filter(None, texts)))
            continue
        if len(fields) == FIELDS_MAX:
            left_out.append((name, f"more than {FIELDS_MAX} fields"))
            continue
        fields[field_name(name, list(fields))] = name
        values |= {text: BOOLEANS[text.lower()] for text in found if text.lower() in BOOLEANS}
        missing += [text for text in found if text.lower() not in BOOLEANS]
        missing += _sentinels(texts, sample.dialect.decimal)
    if not fields:
        raise UsageError(f"{sample.origin}: none of its columns has numbers to aggregate")
    return DraftedStream(
        sample.name, sample, key, len({*rest[key]} - {""}) if key else 1, time, fields,
        list(dict.fromkeys(missing)), values, left_out, texts_of,
    )  # fmt: skip


def _key(
    columns: Mapping[str, Sequence[str]], sample: ReadingSample, time: GuessedTime | None
) -> str | None:
    """Return the column that names the device of a reading; None if there is none.

    It has such a name, or it is a text that tells readings of one time from each other.
    """
    times = list(zip(*(sample.columns[name] for name in time.columns), strict=True)) if time else []
    repeated = len(set(times)) < DISTINCT_MIN * len(times)
    candidates = []
    for i, (name, texts) in enumerate(columns.items()):
        if not all(texts) or _counts_rows(name, texts):
            continue
        is_text = _field(name, texts, sample.dialect.decimal) == "texts"
        integral = all(re.fullmatch(r"[+-]?[0-9]+", text) for text in texts)
        distinct = len(set(texts))
        if (_KEY.search(name) or _ID.search(name)) and (is_text or integral):
            if 2 * distinct <= len(texts) or len(texts) <= TEXTS_MAX:
                candidates.append((not _ID.search(name), not is_text, i, name))
        elif (
            is_text
            and repeated
            and len({*zip(times, texts, strict=True)}) >= (DISTINCT_MIN * len(times))
        ):
            candidates.append((True, True, i, name))
    return min(candidates)[3] if candidates else None


def _counts_rows(name: str, texts: Sequence[str]) -> bool:
    """Whether a column numbers the rows."""
    if not _ROW_NUMBER.fullmatch(name) or len(texts) < 2:
        return False
    try:
        return all(int(b) == int(a) + 1 for a, b in pairwise(texts))
    except ValueError:
        return False


def _field(name: str, texts: Sequence[str], decimal: str) -> list[str] | str:
    """Return the texts between the numbers of a field; or why the column is no field."""
    given = [text for text in texts if text]
    if _counts_rows(name, given):
        return "numbers the rows"
    if _PLACE.fullmatch(name.rpartition(".")[2]) and len(set(given)) <= max(1, len(given) // 2):
        return "a place"
    others = Counter(text for text in given if number_of(text, decimal) is None)
    numeric = len(given) - others.total()
    boolean = sum(n for text, n in others.items() if text.lower() in BOOLEANS)
    if numeric + boolean < NUMERIC_MIN * len(given) or len(others) > TEXTS_MAX:
        return "texts"
    return list(others)


def _sentinels(texts: Sequence[str], decimal: str) -> list[float]:
    """Return numbers that stand for a missing value: known ones, far from all others."""
    numbers = [n for text in texts if (n := number_of(text, decimal)) is not None]
    found = []
    for sentinel in SENTINELS:
        others = [n for n in numbers if n not in SENTINELS and math.isfinite(n)]
        if sentinel not in numbers or not others:
            continue
        gap = min(others) - sentinel if sentinel < 0 else sentinel - max(others)
        if gap > max(10.0, 2 * (max(others) - min(others))):
            found.append(sentinel)
    return found
