"""The summary of a run that was ended: which tests failed, which ran, and which took longest."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.took import VARIABLE, note, summary


def test_it_names_what_failed_what_ran_and_what_took_longest() -> None:
    one = "10.0 1.0 begins a.py::x\n14.0 3.5 ends a.py::x\n14.0 3.5 begins a.py::y[1 2]\n"
    other = "11.0 0.0 begins b.py::z\n11.5 0.1 fails b.py::z\n12.0 9.0 ends b.py::z\n"
    assert summary([one, other], 30.0) == [
        "failed: b.py::z",
        "ran at the end, for 16 s: a.py::y[1 2]",
        "took 4 s, 2 s of CPU: a.py::x",
        "took 1 s, 9 s of CPU: b.py::z",
    ]


def test_nothing_is_written_without_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    note("begins", "a.py::x")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    note("begins", "a.py::y")
    (file,) = tmp_path.iterdir()
    assert file.read_text().endswith(" begins a.py::y\n")
