"""The witness of a rehearsal detects a halted machine, and no other."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support.halt_witness import STOOD_STILL_S, Witness
from tests.support.waiting import eventually


def test_a_disk_that_is_at_something_else_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]

    def slow(_file: int) -> None:
        clock[0] += STOOD_STILL_S + 1

    monkeypatch.setattr(os, "fsync", slow)
    monkeypatch.setattr(
        "tests.support.halt_witness.time", SimpleNamespace(monotonic=lambda: clock[0])
    )
    with Witness(tmp_path) as witness:
        eventually(lambda: witness.stood_still)
    assert list(tmp_path.iterdir()) == []


def test_a_machine_that_has_time_is_noticed(tmp_path: Path) -> None:
    def is_quiet() -> bool:
        with Witness(tmp_path) as witness:
            eventually((tmp_path / "witness").exists)
        return not witness.stood_still

    eventually(is_quiet, "an undisturbed moment")
