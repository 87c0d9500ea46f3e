"""The schemas of the internal logs (``schemas/*.avsc``): their texts, fingerprints and codecs."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Final

from slackwater.codec.avro import RecordCodec

SCHEMAS: Final = (
    "source",
    "ordered",
    "delta",
    "orderer_state",
    "root_state",
    "heartbeat",
    "registry",
)
_KEY_FIELDS: Final = {"source": ("keys", "fields"), "ordered": ("keys",), "delta": ("keys",)}
_SCHEMA_DIR: Final = Path(__file__).resolve().parents[3] / "schemas"


@cache
def schema_json(name: str) -> str:
    """The schema's text, as Spark and fastavro want it."""
    assert name in SCHEMAS, f"no schema is called {name}"
    return (_SCHEMA_DIR / f"{name}.avsc").read_text(encoding="utf-8")


@cache
def codec(name: str) -> RecordCodec:
    """The compiled schema, and the recorded ones before it (schemas/README.md)."""
    recorded = json.loads((_SCHEMA_DIR / "fingerprints.json").read_text(encoding="utf-8"))[name]
    older = [
        json.loads((_SCHEMA_DIR / "recorded" / f"{name}-{version}.avsc").read_text("utf-8"))
        for version in recorded[:-1]
    ]
    return RecordCodec(json.loads(schema_json(name)), _KEY_FIELDS.get(name, ()), older)


def fingerprint(name: str) -> bytes:
    """The schema's CRC-64-AVRO, 8 bytes, as bytes 3 to 10 of each of its records."""
    return codec(name).fingerprint


def older_versions(name: str) -> dict[bytes, bytes]:
    """Per older version its header, and the bytes that make its records ones of today."""
    return dict(codec(name).older)
