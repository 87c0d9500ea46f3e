"""Files that are accessible to their owner only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slackwater.runtime.security.private import open_to_others, write_atomically


def test_a_file_is_durable_before_its_name_and_the_name_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    path.write_text("old")
    synced: list[tuple[str, str]] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        synced.append((Path(f"/proc/self/fd/{fd}").readlink().name, path.read_text()))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    write_atomically(path, "new")
    assert synced == [("state.part", "old"), (tmp_path.name, "new")]


@pytest.mark.parametrize(
    ("mode", "is_open"), [(0o600, False), (0o400, False), (0o640, True), (0o602, True)]
)
def test_a_file_is_private_if_others_have_no_right_to_it(
    tmp_path: Path, mode: int, is_open: bool
) -> None:
    path = tmp_path / "secret"
    path.touch()
    path.chmod(mode)
    assert (open_to_others(path) is not None) == is_open
