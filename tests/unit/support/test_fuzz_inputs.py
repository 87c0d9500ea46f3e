"""Both readers on generated input; `python -m tests.fuzz` runs more of it."""

from __future__ import annotations

import pytest
from tests.fuzz.run import SIZE, Kind, examples, slices


@pytest.mark.parametrize(
    ("kind", "messages"),
    [
        ("json", 15_000),
        ("near", 15_000),
        ("columns", 4_000),
        ("arrays", 4_000),
        ("csv", 4_000),
    ],
)
def test_whatever_is_sent_is_read_once_or_malformed_and_ends_nothing(
    kind: Kind, messages: int
) -> None:
    outcome = examples(kind, range(messages // SIZE))
    assert outcome.findings == []
    assert outcome.read == messages


@pytest.mark.drill
@pytest.mark.timeout(8 * 3_600)
@pytest.mark.parametrize(
    ("kind", "messages"),
    [
        ("json", 10_000_000),
        ("near", 10_000_000),
        ("columns", 1_000_000),
        ("arrays", 1_000_000),
        ("csv", 1_000_000),
    ],
)
def test_fuzz_in_full(kind: Kind, messages: int) -> None:
    found = []
    for seeds in slices(10_000, messages // SIZE):
        found += examples(kind, seeds).findings
    assert found == []
