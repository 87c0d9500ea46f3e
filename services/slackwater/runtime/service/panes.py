"""Panes and heads in ``sw.panes.<query>`` (``model.heads``): of each key the last record counts.

They are written outside transactions. A record that is damaged is skipped and counted; then a head
lacks a pane, and a start takes another head.
"""

from __future__ import annotations

from typing import Final

from slackwater.codec.pane_records import decode_head, decode_pane, encode_head, encode_pane
from slackwater.model.errors import MalformedRecordError
from slackwater.model.heads import (
    Head,
    HeadKey,
    Key,
    PaneKey,
    PaneRecord,
    Stored,
    StoredState,
    parse_key,
)
from slackwater.runtime.logs.skipped import SKIPPED
from slackwater.runtime.logs.transport import RawRecord, Transport, read_to_end

NOT_A_PANE: Final = "not a record of a pane"


def encode_stored(record: Stored) -> bytes | None:
    """Encode a piece of a pane or a head; None deletes its key."""
    if record is None:
        return None
    return encode_head(record) if isinstance(record, Head) else encode_pane(record)


def read_panes(
    transport: Transport, query: str, part: int, *, keys_only: bool, timeout_s: float = 30.0
) -> StoredState:
    """Read what is stored of a part: the heads, and the panes that they name."""
    log = (transport.names.panes(query), part)
    latest: dict[Key, RawRecord] = {}
    for raw in read_to_end(transport, log, isolation="read_uncommitted", timeout_s=timeout_s):
        key = parse_key((raw.key or b"").decode(errors="replace"))
        if key is None:
            SKIPPED.note(*log, raw.offset, NOT_A_PANE, "another key")
        elif raw.value:
            latest[key] = raw
        else:
            latest.pop(key, None)
    found = (_decoded(key, raw) for key, raw in latest.items() if isinstance(key, HeadKey))
    heads = tuple(head for head in found if isinstance(head, Head))
    pieces: dict[PaneKey, PaneRecord] = {}
    if not keys_only:
        wanted = {
            PaneKey(ref, piece)
            for head in heads
            for ref in head.panes
            for piece in range(ref.pieces)
        }
        for key in wanted & latest.keys():
            record = _decoded(key, latest[key])
            if isinstance(record, PaneRecord):
                pieces[key] = record
    return StoredState(heads, pieces, frozenset(latest))


def _decoded(key: Key, raw: RawRecord) -> Stored:
    """Decode a record; None, counted, if it is damaged or another one than its key tells."""
    where = f"{raw.topic}:{raw.partition}:{raw.offset}"
    try:
        if isinstance(key, HeadKey):
            head = decode_head(raw.value, where)
            if head.term == key.term:
                return head
        else:
            record = decode_pane(raw.value, where)
            if (record.ref, record.piece) == (key.ref, key.piece):
                return record
    except MalformedRecordError as error:
        SKIPPED.note(*raw.log, raw.offset, NOT_A_PANE, error.reason)
        return None
    SKIPPED.note(*raw.log, raw.offset, NOT_A_PANE, "another one than its key")
    return None
