"""What is on disk survives, and what cannot be read is neither used nor replaced."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slackwater.control.control_object import (
    ApplyQuery,
    ControlObject,
    JoinNode,
    MoveFragment,
    view_of_number,
)
from slackwater.control.control_state import ControlState
from slackwater.controller.store import FILE_NAME, open_store
from slackwater.model.errors import EnvironmentProblem
from slackwater.protocols.iads.messages import SavedMembership, Stamp


def test_a_new_file_has_a_greater_incarnation_than_a_lost_one(tmp_path: Path) -> None:
    """The other controllers refuse an incarnation that is smaller than the last one."""
    began_s = int(time.time())
    store = open_store(tmp_path, "a")
    store.save_membership(store.saved)
    store.close()
    again = open_store(tmp_path, "a")
    again.close()
    assert (store.is_new, again.is_new) == (True, False)
    assert again.saved == store.saved
    assert store.saved.incarnation >= began_s


def test_the_view_number_is_that_of_the_newest_entry(tmp_path: Path) -> None:
    """Of two entries of a query the one of the later view remains."""
    store = open_store(tmp_path, "a")
    obj = ControlObject(frozenset("a"), ControlState())
    obj.apply(ApplyQuery("climate", "x"), Stamp(9, 1, "a"))
    store.save_state(obj.state)
    store.close()
    assert store.saved.view_number == 9


def filled() -> ControlState:
    obj = ControlObject(frozenset("ab"), ControlState())
    obj.apply(ApplyQuery("climate", 'windows: "1 s"\n\x01é'), Stamp(7, 1, "a"))
    obj.apply(JoinNode("n1", 9, (("site", "north"),)), Stamp(7, 2, "a"))
    obj.apply(MoveFragment("climate", "0.a", "n1"), Stamp(7, 3, "b"))
    return obj.state


def test_a_restart_finds_what_was_saved(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a", "a")
    assert (store.saved.view_number, store.state) == (0, ControlState())
    store.save_membership(SavedMembership(3, 2))
    store.save_state(filled())
    store.close()
    again = open_store(tmp_path / "a", "a")
    assert again.state == filled()
    assert again.saved.incarnation == 2
    again.close()
    assert again.saved.view_number == view_of_number(filled().number_greatest) == 7


def test_all_of_it_is_its_owner_s_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = open_store(tmp_path / "a", "a")
        store.save_state(filled())
        store.close()
    finally:
        os.umask(before)
    found = [tmp_path / "a", *(tmp_path / "a").iterdir()]
    assert len(found) > 2
    assert [path.name for path in found if path.stat().st_mode & 0o77] == []


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda data: data[: len(data) // 2], "cannot be read"),
        (lambda data: b"", "cannot be read"),
        (lambda data: data.replace(b"[1,", b"[2,", 1), "version 2"),
        (lambda data: data.replace(b'"a"]', b'"b"]', 1), "controller 'b'"),
    ],
    ids=("half", "empty", "version", "name"),
)
def test_a_file_that_cannot_be_used_is_left_alone(
    tmp_path: Path, damage: Callable[[bytes], bytes], why: str
) -> None:
    store = open_store(tmp_path, "a")
    store.save_state(filled())
    store.close()
    path = tmp_path / FILE_NAME
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    with pytest.raises(EnvironmentProblem, match=why):
        open_store(tmp_path, "a")
    assert path.read_bytes() == damaged


def test_one_process_has_the_directory(tmp_path: Path) -> None:
    store = open_store(tmp_path, "a")
    with pytest.raises(EnvironmentProblem, match="another controller"):
        open_store(tmp_path, "a")
    store.close()
