"""A list of keys is on the link once, and each reader has it that needs it (trace-80)."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from slackwater.model.heads import PaneColumns, PaneRecord, PaneRef
from slackwater.model.merged import MergedRecord
from slackwater.model.windows import WindowSpec
from slackwater.protocols.fargo import key_lists
from slackwater.protocols.fargo.key_lists import (
    LISTS_US_MAX,
    PANES,
    KnownLists,
    SentLists,
    carries,
    hash_of,
    lists_us,
)

PANE = 100
HOLDS = 8 * PANE
LISTS = (("a", "b"), ("a", "bc"), ("ab", "c"), ("d",))


def record(start: int, keys: tuple[str, ...], piece: int = 0, pieces: int = 1) -> MergedRecord:
    """Return a piece of a pane."""
    ref = PaneRef(0, start, len(keys) * pieces, pieces if keys else 0, 7)
    columns = PaneColumns(keys, np.full((1, 1, len(keys)), float(start)), {})
    return MergedRecord(PaneRecord(ref, piece, columns), start + PANE, ())


def keys_of(found: MergedRecord | None) -> tuple[str, ...]:
    assert found is not None, "its keys are not known"
    return tuple(found.pane.columns.keys)


def test_a_list_is_sent_twice_and_then_named() -> None:
    sent = SentLists(HOLDS)
    found = [sent.sent(record(n * PANE, LISTS[0])) for n in range(20)]
    named = [bool(of.keys_hash) and not carries(of) for of in found]
    assert [n for n, of in enumerate(named) if not of] == [0, 1, 9, 17], "again after eight panes"
    assert carries(found[1])
    assert not found[0].keys_hash, "nothing names a list that may not come again"
    known = KnownLists(HOLDS)
    assert [keys_of(known.completed(of)) for of in found] == [LISTS[0]] * 20


def test_lists_that_do_not_repeat_are_remembered_nowhere() -> None:
    sent, known = SentLists(HOLDS), KnownLists(HOLDS)
    for n in range(20):
        of = sent.sent(record(n * PANE, (f"k{n}",)))
        assert keys_of(known.completed(of)) == (f"k{n}",)
    assert len(known) == 0


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_lists, "CARRIED_KEYS_MAX", 3)
    sent, known = SentLists(HOLDS), KnownLists(HOLDS)
    for n in range(20):
        for piece, keys in enumerate((("a", "b"), ("c", "d"))):
            of = sent.sent(record(n * PANE, keys, piece, 2))
            assert keys_of(known.completed(of)) == keys
            assert piece == 0 or not of.keys_hash, "there is no room for the second list"
    assert len(known) == 1


def test_a_list_that_no_record_had_is_told() -> None:
    sent = SentLists(HOLDS)
    found = [sent.sent(record(n * PANE, LISTS[0])) for n in range(3)]
    assert KnownLists(HOLDS).completed(found[2]) is None
    wrong = replace(found[2], keys_hash=hash_of(LISTS[3]))
    known = KnownLists(HOLDS)
    known.completed(replace(record(0, LISTS[3]), keys_hash=hash_of(LISTS[3])))
    assert known.completed(wrong) is None, "a list of another length"


def test_hashes_tell_lists_apart() -> None:
    assert len({hash_of(of) for of in (*LISTS, (), ("",), ("", ""))}) == 7
    assert all(-(2**63) <= hash_of(of) < 2**63 for of in LISTS)


def test_an_empty_pane_has_no_list() -> None:
    sent = SentLists(HOLDS)
    assert [sent.sent(record(n * PANE, ())).keys_hash for n in range(3)] == [0, 0, 0]


def test_for_how_long_a_list_is_named() -> None:
    assert lists_us(WindowSpec(10_000_000, 10_000_000)) == PANES * 10_000_000
    assert lists_us(WindowSpec(15_000_000, 10_000_000)) == PANES * 5_000_000
    assert lists_us(WindowSpec(86_400_000_000, 86_400_000_000)) == LISTS_US_MAX


@pytest.mark.parametrize("seed", range(200))
def test_a_reader_that_starts_at_any_pane_has_the_lists_that_it_needs(seed: int) -> None:
    """Two uplinks write, each from where it likes, and begin again; readers start at any time.

    A reader starts at the first record that it needs: a pane from S on, or one that carries a list
    which such a pane may name.
    """
    rng = Random(seed)
    log: list[MergedRecord] = []
    uplinks = [SentLists(HOLDS), SentLists(HOLDS)]
    reached = 0
    for _ in range(60):
        copy = rng.randrange(2)
        if rng.random() < 0.1:
            uplinks[copy] = SentLists(HOLDS)
        # It goes on at the end of what the centre has, or sends again what it had not read of.
        start = max(reached - rng.choice([0, 0, 0, 1, 3]) * PANE, 0)
        for _ in range(rng.randrange(1, 5)):
            # What a pane has depends on the pane alone.
            at = Random(start // PANE // 5).randrange(len(LISTS))
            log.append(uplinks[copy].sent(record(start, LISTS[at])))
            start += PANE
        reached = max(reached, start)
    begins = rng.randrange(0, reached, PANE)
    needed = [of.end > begins or (carries(of) and of.start + HOLDS > begins) for of in log]
    known, frontier = KnownLists(HOLDS), begins
    for of in log[needed.index(True) :]:
        found = known.completed(of)
        if of.start == frontier:
            assert keys_of(found) == LISTS[Random(of.start // PANE // 5).randrange(len(LISTS))]
            frontier = of.end
    assert frontier == reached
