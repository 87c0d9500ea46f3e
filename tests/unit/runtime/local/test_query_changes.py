"""What is left of a change that is registered and then fails, on a stack that is a value."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.node.test_admission import ONE, THREE, parsed

from slackwater.model.deployment import Deployment
from slackwater.runtime.local import query_changes
from slackwater.runtime.local.query_changes import QueryChanges


class FakeFragments:
    """Records what is settled and told; fails once if the disk is full."""

    def __init__(self, done: list[tuple[str, Any]], full: list[bool]) -> None:
        self._done, self._full = done, full

    async def settle(self, running: Deployment, paused: frozenset[str]) -> None:
        if paused:
            self._done.append(("paused", paused))
        if self._full and self._full.pop():
            raise OSError("no space left on device")
        self._done.append(("settled", [*running.queries]))

    def learn(self, streams: list[str], _deployment: Deployment) -> None:
        self._done.append(("told", streams))


async def test_fragments_are_started_and_proxies_told_at_the_next_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[tuple[str, Any]] = []
    full = [True]
    stack = SimpleNamespace(
        deployment=parsed(ONE), paused=frozenset(), supervisor=None, launch=None,
        running=parsed(ONE), registration_of=lambda deployment: deployment,
    )  # fmt: skip

    def set_queries(deployment: Deployment, paused: frozenset[str]) -> None:
        stack.deployment = stack.running = deployment
        stack.paused = paused

    stack.set_queries = set_queries
    monkeypatch.setattr(query_changes, "Fragments", lambda *_: FakeFragments(done, full))
    changes = QueryChanges(stack)  # type: ignore[arg-type]
    spec = parsed(ONE, THREE).queries["three"]
    monkeypatch.setattr(changes, "_register", lambda *_: SimpleNamespace(spec=spec))
    await changes.settle()
    assert done == [], "nothing is left"
    with pytest.raises(OSError, match="no space"):
        await changes.apply(parsed(ONE, THREE), "three")
    assert done == []
    await changes.settle()
    assert done == [("settled", ["one", "three"]), ("told", ["b"])]
    await changes.settle()
    assert len(done) == 2, "once"
    monkeypatch.setattr(changes, "_is_settled", False)
    stack.paused = frozenset({"two"})
    await changes.settle()
    assert done[2] == ("paused", {"two"}), "a later generation of it must wait"
