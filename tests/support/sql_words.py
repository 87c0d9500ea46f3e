"""Words with a meaning in some SQL dialect, for tests of fields with these names."""

from __future__ import annotations

import re

from sqlglot import Dialect
from sqlglot.dialects import Dialects

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# Columns of the audit and of the rehearsal's SQLite, and names of functions in expressions.
OURS = set(
    re.findall(
        NAME,
        """
        stime base floor keys key_ key_index i after back window_start window_end topic offset r id
        readings c0 c1 o0 f0 e0 given wanted times gapped kind label fields lost columns partition
        value abs round ceil sqrt ln exp power pow least greatest count sum avg min max range var
        stddev rowid _rowid_ oid b e n u x inf nan infinity t load set copy comment update
        """,
    )
)


def sql_words() -> list[str]:
    """Return the words of every dialect of sqlglot, including SQLite and Spark, and those above."""
    dialects = [Dialect.get_or_raise(dialect.value) for dialect in Dialects]
    words = {word for of in dialects for word in of.tokenizer_class.KEYWORDS}
    return cases_of({word for word in words if NAME.fullmatch(word)} | OURS)


def cases_of(words: set[str]) -> list[str]:
    """Return each word in capitals and in small letters, except the name of the key."""
    small = sorted({word.lower() for word in words})
    return [case for word in small for case in (word.upper(), word) if case != "key"]
