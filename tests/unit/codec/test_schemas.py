"""Schemas may change only so that records of old programs can still be read."""

from __future__ import annotations

import copy
import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest
from fastavro.read import SchemaResolutionError
from fastavro.utils import generate_many

from slackwater.codec import SCHEMAS, fingerprint, schema_json
from slackwater.codec.avro import RecordCodec

FOLDER = Path(__file__).parents[3] / "schemas"
RECORDED: dict[str, list[str]] = json.loads((FOLDER / "fingerprints.json").read_text())


def recorded(name: str, version: str) -> Any:
    return json.loads((FOLDER / "recorded" / f"{name}-{version}.avsc").read_text())


def read_across(old: Any, new: Any) -> None:
    """Write with one schema, read with the other; raises if that is impossible."""
    for value in generate_many(copy.deepcopy(old), 20):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, copy.deepcopy(old), value)
        out.seek(0)
        fastavro.schemaless_reader(out, copy.deepcopy(old), copy.deepcopy(new))


def test_every_schema_is_listed() -> None:
    assert {path.stem for path in FOLDER.glob("*.avsc")} == set(SCHEMAS) == set(RECORDED)


def test_the_schemas_are_those_of_the_given_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topics and jars were already; an image sets SLACKWATER_HOME."""
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "registry.avsc").write_text('{"name": "of-another-root"}')
    monkeypatch.setenv("SLACKWATER_HOME", str(tmp_path))
    assert schema_json.__wrapped__("registry") == '{"name": "of-another-root"}'


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schema_in_use_is_the_last_one_recorded(name: str) -> None:
    now = fingerprint(name).hex()
    assert RECORDED[name][-1] == now, (
        f"{name} changed: copy schemas/{name}.avsc to schemas/recorded/{name}-{now}.avsc and append"
        f" {now} to its list in schemas/fingerprints.json (see schemas/README.md)"
    )


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_recorded_version_can_still_be_read(name: str) -> None:
    for version in RECORDED[name]:
        old = recorded(name, version)
        assert RecordCodec(old).fingerprint.hex() == version, "a recorded schema was edited"
        read_across(old, json.loads(schema_json(name)))


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_check_tells_good_changes_from_bad_ones(name: str) -> None:
    old = json.loads(schema_json(name))
    more = copy.deepcopy(old)
    more["fields"].append({"name": "added", "type": "long", "default": 0})
    read_across(old, more)
    without_default = copy.deepcopy(more)
    del without_default["fields"][-1]["default"]
    renamed = copy.deepcopy(old)
    renamed["fields"][0]["name"] = "other"
    retyped = copy.deepcopy(old)
    retyped["fields"][0]["type"] = "boolean"
    for bad in (without_default, renamed, retyped):
        with pytest.raises(SchemaResolutionError):
            read_across(old, bad)


def test_the_fingerprint_is_the_specifications() -> None:
    """The CRC of an int schema, as the specification's algorithm gives it, low byte first."""
    empty = 0xC15D213AA4D7A795

    def crc(data: bytes) -> int:
        value = empty
        for byte in data:
            value ^= byte
            for _ in range(8):
                value = (value >> 1) ^ (empty & -(value & 1))
        return value

    codec = RecordCodec({"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]})
    text = b'{"name":"R","type":"record","fields":[{"name":"x","type":"int"}]}'
    assert codec.fingerprint == crc(text).to_bytes(8, "little")
