"""Names the encoding of data that is no UTF-8 text, or that has a byte order mark."""

from __future__ import annotations

import codecs
from typing import Final

BOM: Final = codecs.BOM_UTF8
_WIDE: Final = (  # those of UTF-32 first: they begin with one of UTF-16, or hold one
    ("UTF-32", (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)),
    ("UTF-16", (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)),
)
_CODECS: Final = {
    (False, True): "utf-16-le",
    (True, False): "utf-16-be",
    (False, True, False, True): "utf-16-le",
    (True, False, True, False): "utf-16-be",
    (False, True, True, True): "utf-32-le",
    (True, True, True, False): "utf-32-be",
}
"""Encodings by which of the first bytes are zero."""
MARKED: Final = "begins with a byte order mark (EF BB BF): write UTF-8 without it"


def wide_encoding(data: bytes) -> str:
    """Return ``UTF-16`` or ``UTF-32``; empty if data is neither.

    Without a mark it is known by its zero bytes: ASCII has one in each pair of bytes, or three in
    each four. Data that is no text may look the same, so it is asked only of what was refused.
    """
    for name, marks in _WIDE:
        if data.startswith(marks):
            return name
    codec = _CODECS.get(tuple(byte == 0 for byte in data[:4]), "")
    if not codec:
        return ""
    try:
        text = data.decode(codec)
    except UnicodeDecodeError:
        return ""
    return codec[:6].upper() if text[0].isprintable() or text[0].isspace() else ""


def encoding_fault(message: bytes, given: bytes | None = None) -> str:
    """Return what is wrong with the encoding of a message that was refused; empty if nothing is.

    ``given``: the message with the header of a schema registry, which ``message`` is without.
    """
    if message.startswith(BOM):
        return MARKED
    wide = wide_encoding(message if given is None else given)
    return f"is {wide}: write UTF-8" if wide else ""
