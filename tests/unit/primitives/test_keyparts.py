"""Parts of keys: the hash is Spark's, for each key alone and for columns of them."""

from __future__ import annotations

import re
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater import client
from slackwater.primitives.keyparts import CRC32, KEY_HASHES, KeyHash, part_of, parts_of, xxhash64

ROOT = Path(__file__).parents[3]
OF_SPARK = {
    "": -7444071767201028348,
    "a": -8582455328737087284,
    "room-1": 9013845984882496776,
    "Küche": -5332052015547347958,
    "部屋": 8473386187762255066,
    "🌊": -1684803091743334420,
    "x" * 31: -1716462135722163746,
    "x" * 32: 1299777543150008824,
    "y" * 45: 6488625703338518348,
    "a" * 1000: 3366923352332975285,
}
"""What Spark 4 returned; tests/unit/spark compares them with the present one."""


def test_the_hash_is_that_of_spark() -> None:
    assert xxhash64(list(OF_SPARK)).tolist() == list(OF_SPARK.values())
    assert [xxhash64([key])[0] for key in OF_SPARK] == list(OF_SPARK.values())
    assert xxhash64([]).tolist() == []


@given(st.lists(st.text(max_size=80)), st.integers(1, 7), st.sampled_from(KEY_HASHES))
def test_a_key_has_one_part_whatever_is_beside_it(
    keys: list[str], parts: int, key_hash: KeyHash
) -> None:
    at_once = parts_of(keys, parts, key_hash).tolist()
    assert at_once == [part_of(key, parts, key_hash) for key in keys]
    assert all(0 <= part < parts for part in at_once)


def test_a_negative_hash_has_a_part() -> None:
    assert [part_of(key, 5) for key in ("", "a", "room-1")] == [2, 1, 1]
    assert parts_of(["a", "Küche"], 1).tolist() == [0, 0]


def test_the_page_for_clients_has_the_part_of_a_key() -> None:
    page = (ROOT / "docs/howto/read-results.md").read_text()
    key, parts, part = re.findall(r'part_of\("(.+)", (\d)\)  # (\d), of', page)[0]
    assert client.part_of(key, int(parts)) == int(part)
    for key, hashed in OF_SPARK.items():
        rest = int(np.fmod(np.int64(hashed), np.int64(3)))  # with the sign of the hash
        assert part_of(key, 3) == (rest + 3 if rest < 0 else rest)


def test_the_earlier_hash_is_crc_32() -> None:
    assert [part_of(key, 3, CRC32) for key in OF_SPARK] == [crc32(k.encode()) % 3 for k in OF_SPARK]


@pytest.mark.parametrize("parts", [2, 3, 4, 8])
@pytest.mark.parametrize("name", ["sensor-{}", "{}", "building-7/floor-{}/temperature/celsius"])
def test_numbered_keys_are_spread(name: str, parts: int) -> None:
    """With 1,000 keys the greatest part has at most a quarter more than its share."""
    counts = np.bincount(parts_of([name.format(i) for i in range(1_000)], parts), minlength=parts)
    assert counts.max() <= 1.25 * 1_000 / parts
