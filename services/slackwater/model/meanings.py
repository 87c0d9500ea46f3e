"""What texts and booleans mean as values of a stream: a number, or a missing value.

Devices write ``unavailable``, ``N/A`` or -999 where they have no value, and ``on`` or ``true``
where they have a state. Both are declared for a stream as a unit: such texts belong to the software
that writes all of its fields. Texts are compared without blanks around them and without regard to
the case of ASCII letters. A boolean is the text ``true`` or ``false``. A number stands for a
missing value by its value too, so -999 is also -999.0.
"""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from slackwater.model.deployment import StreamSpec
from slackwater.model.records import type_f64
from slackwater.model.text_codes import text_code

_SMALL: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


@dataclass(frozen=True, slots=True, eq=False)
class Meanings:
    """Texts in small letters with their numbers, NaN if missing; numbers that are missing."""

    texts: Mapping[str, float]
    numbers: Sequence[float] = ()
    is_text: bool = False
    """Whether the field is a text: each text means its code, except those that are missing."""

    def of_text(self, text: str) -> float | None:
        """Return the meaning of a text; None if none is declared."""
        declared = self.texts.get(in_small_letters(text)) if self.texts else None
        return text_code(text) if self.is_text and declared is None else declared

    def of_boolean(self, value: bool) -> float | None:
        """Return the meaning of a boolean; None if none is declared."""
        return self.of_text("true" if value else "false")

    def of_number(self, value: float) -> float:
        """Return the number, or NaN if it stands for a missing value."""
        return math.nan if value in self.numbers else value

    def of_column(self, values: type_f64) -> type_f64:
        """Return a column in which numbers that stand for a missing value are NaN."""
        if not self.numbers:
            return values
        found: type_f64 = np.where(np.isin(values, self.numbers), np.nan, values)
        return found


NO_MEANINGS: Final = Meanings({})
"""Of a stream that declares none."""


def field_meanings(spec: StreamSpec) -> list[Meanings]:
    """Return the meanings for each field."""
    numeric, texts = meanings_of(spec), _of_texts(spec.missing)
    return [texts if field.is_text else numeric for field in spec.fields]


def meanings_of(spec: StreamSpec) -> Meanings:
    """Return what the stream declares for its fields that are numbers."""
    return _meanings(spec.missing, spec.values) if spec.missing or spec.values else NO_MEANINGS


@lru_cache(maxsize=256)
def _of_texts(missing: Sequence[str]) -> Meanings:
    return Meanings(dict.fromkeys(map(in_small_letters, missing), math.nan), is_text=True)


@lru_cache(maxsize=256)
def _meanings(missing: Sequence[str], values: Sequence[tuple[str, float]]) -> Meanings:
    texts = {in_small_letters(text): number for text, number in values}
    texts |= dict.fromkeys(map(in_small_letters, missing), math.nan)
    numbers = [number for number in map(as_number, missing) if number is not None]
    return Meanings(texts, tuple(numbers))


def in_small_letters(text: str) -> str:
    """Return the text with its ASCII letters in lower case."""
    return text.translate(_SMALL)


def as_number(text: str) -> float | None:
    """Return the finite number that a declared text is; None if it is none."""
    if not text.isascii() or "_" in text:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
