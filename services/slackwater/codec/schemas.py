"""Schemas of the internal logs (``schemas/*.avsc``): texts, fingerprints and codecs."""

from __future__ import annotations

import json
from functools import cache
from typing import Final

from slackwater.codec.avro import RecordCodec
from slackwater.codec.paths import schemas_dir

SCHEMAS: Final = (
    "source",
    "ordered",
    "wide_ordered",
    "delta",
    "wide_delta",
    "orderer_state",
    "root_state",
    "heartbeat",
    "registry",
    "pane",
    "head",
    "merged",
)
_KEY_FIELDS: Final = {
    "source": ("keys", "fields"),
    "ordered": ("keys",),
    "wide_ordered": ("keys",),
    "delta": ("keys",),
    "wide_delta": ("keys",),
    "pane": ("keys",),
    "merged": ("keys",),
}


@cache
def schema_json(name: str) -> str:
    """Return the schema's text as JSON, for Spark and fastavro."""
    assert name in SCHEMAS, f"no schema is called {name}"
    return (schemas_dir() / f"{name}.avsc").read_text(encoding="utf-8")


@cache
def codec(name: str) -> RecordCodec:
    """Return the codec of the schema, which also reads its older versions (schemas/README.md)."""
    recorded = json.loads((schemas_dir() / "fingerprints.json").read_text(encoding="utf-8"))[name]
    older = [
        json.loads((schemas_dir() / "recorded" / f"{name}-{version}.avsc").read_text("utf-8"))
        for version in recorded[:-1]
    ]
    return RecordCodec(json.loads(schema_json(name)), _KEY_FIELDS.get(name, ()), older)


def fingerprint(name: str) -> bytes:
    """Return the schema's CRC-64-AVRO: 8 bytes, the third to the tenth of each of its records."""
    return codec(name).fingerprint


def older_versions(name: str) -> dict[bytes, bytes]:
    """Return, by the header of each older version, the bytes to append to its records."""
    return dict(codec(name).older)
