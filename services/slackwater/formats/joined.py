"""Keys and times of several parts, such as a site and a sensor, or a date and a time of day.

A part is a text or a whole number. The parts of a key are joined by a text that none of them may
contain: otherwise two devices (``a/b`` and ``c``, ``a`` and ``b/c``) would have one key. A time has
no such rule, since its format tells the parts apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.formats.columns import KEY, Mask, key_chars_max


def ambiguous(join: str) -> str:
    """Return the detail of a reading with a part that contains the text between the parts."""
    return f"{KEY}: a part contains {join!r}, which joins the parts"


def key_of_parts(parts: Sequence[str | None], join: str) -> tuple[str, str]:
    """Return the key and no fault, or no key and the detail for quarantine."""
    texts = [part for part in parts if part]
    if len(texts) < len(parts):
        return "", KEY
    if len(texts) > 1 and any(join in text for text in texts):
        return "", ambiguous(join)
    key = join.join(texts)
    return ("", KEY) if len(key) > key_chars_max else (key, "")


def joined_keys(columns: Sequence[Any], join: str) -> tuple[Any, Mask]:
    """Join columns of text; a key with an empty part is empty.

    The mask marks keys with a part that contains the text between the parts.
    """
    if len(columns) == 1:
        return columns[0], _none_of(columns[0])
    columns = [stripped(column) for column in columns]
    unclear = _none_of(columns[0])
    lacks = pc.equal(columns[0], "")
    for column in columns:
        unclear |= pc.match_substring(column, join).to_numpy(zero_copy_only=False)
        lacks = pc.or_(lacks, pc.equal(column, ""))
    return pc.if_else(lacks, "", joined_texts(columns, join)), unclear


def joined_texts(columns: Sequence[Any], join: str) -> Any:
    """Join columns of text, without the blanks round each part."""
    if len(columns) == 1:
        return columns[0]
    columns = [stripped(column) for column in columns]
    return pc.binary_join_element_wise(*columns, pa.scalar(join, columns[0].type))


def stripped(texts: Any) -> Any:
    """Return a column of text without blanks round its cells, by the rule of ``str.strip``."""
    encoded = pc.dictionary_encode(texts)
    sent = encoded.dictionary.to_pylist()
    kept = [text.strip() for text in sent]
    return texts if kept == sent else pa.array(kept, texts.type).take(encoded.indices)


def _none_of(column: Any) -> Mask:
    return np.zeros(len(column), np.bool_)
