"""trace-56: the hash by which keys are divided changes, and each part is at a place of its own.

Query q has no window and two parts, and was registered by a build that divided its keys by CRC-32.
Part 1 is behind when q is changed, so each part has a first bucket without a stable answer (S) of
its own. A key that goes from part 0 to part 1 with the new generation is answered twice between
the two S, and one that goes the other way not at all. So a generation keeps the hash of the earlier
one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tests.paper.stage import Orderer, Root, Settings, Source, readings

from slackwater.model.deployment import QuerySpec
from slackwater.model.records import RootState
from slackwater.primitives.keyparts import XXHASH64, KeyHash, part_of
from slackwater.primitives.rows import RowContents
from slackwater.protocols.dpc.soutput.config import start_of_generation
from slackwater.registration.key_hashes import key_hash_of
from slackwater.runtime.service.registry import QueryDefinition

ROWS = Settings(bucket_ms=10, rows=True)
SPEC = QuerySpec("q", ("s1",), None, (), None, (), 2_000_000, parts=2)
KEYS = [f"key-{i}" for i in range(8)]


def roots(
    orderer: Orderer, divided_by: KeyHash, query: str, begins: int, states: list[RootState]
) -> list[Root]:
    """A generation's roots of both parts, which continue those with these states."""
    made = []
    for part in range(2):
        others = dict(enumerate(states[part : part + 1]))
        root = Root([orderer], ROWS, query, begins, others)
        contents = partial(RowContents, part=part, parts=2, key_hash=divided_by)
        root.config = replace(root.config, part=part, contents=contents)
        root.crash()
        made.append(root)
    return made


def work(orderer: Orderer, which: list[Root], now_ms: int) -> None:
    orderer.listen()
    orderer.step(now_ms)
    for root in which:
        root.listen()
        root.step(now_ms)


def test_each_reading_is_answered_once_across_a_change() -> None:
    registered = {"q": QueryDefinition("q", 0, 0, 10_000, SPEC)}
    earlier, later = registered["q"].divided_by, key_hash_of(replace(SPEC, name="q.g1"), registered)
    assert {part_of(key, 2, earlier) - part_of(key, 2, XXHASH64) for key in KEYS} == {-1, 0, 1}

    source = Source("s1")
    orderer = Orderer([source], ROWS)
    both = roots(orderer, earlier, "q", 0, [])
    sent = 0
    for now_ms in range(10, 50, 10):
        for at_ms, key in enumerate(KEYS, start=now_ms - 10):
            source.emit([at_ms], at_ms, key=key)
            sent += 1
        source.emit([], now_ms)
        work(orderer, both if now_ms < 30 else both[:1], now_ms + 1)  # part 1 has ended
    states = [root.state for root in both if root.state is not None]
    stable_from = [state.stable_from for state in states]
    assert stable_from[0] > stable_from[1]

    assert later is not None
    begins = start_of_generation(min(stable_from), 0, 0)
    changed = Orderer([source], ROWS, query="q.g1", start_time=begins)
    continued = roots(changed, later, "q.g1", begins, states)
    source.emit([], 60)
    work(changed, continued, 61)
    rows = [row for root in (*both, *continued) for row in readings(root, root.emitted)]
    assert {label for label, *_ in rows} == {"stable"}
    assert len(rows) == len(set(rows)) == sent
