"""For any content of run.json a command ends with one sentence that names the file, or works."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slackwater.cli import app as cli
from slackwater.runtime.service import settings as settings_module

COMMANDS = (
    "status",
    "results climate",
    "query list",
    "query show climate",
    "ingest room-1 a.csv",
    "audit climate",
)
VALID = {"bootstrap": "127.0.0.1:9", "deployment": "none.yaml", "pid": 1, "processes": {"a": 1}}
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
nearly = st.fixed_dictionaries(
    {}, optional={name: values | st.just(value) for name, value in VALID.items()}
)
documents = (values | nearly).map(lambda value: json.dumps(value).encode())
truncated = st.tuples(documents, st.integers(0, 200)).map(lambda cut: cut[0][: cut[1]])


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("BOOTSTRAP", "DATA_DIR"):
        monkeypatch.delenv(f"SLACKWATER_{name}", raising=False)
    settings_module.settings.cache_clear()
    yield
    settings_module.settings.cache_clear()


def run(line: str, data_dir: Path) -> tuple[object, str]:
    """Return the exit code and stderr; no broker is running."""
    errors = io.StringIO()
    with (
        patch.object(sys, "argv", ["slackwater", *line.split(), "--data-dir", str(data_dir)]),
        patch("slackwater.machine.broker.why_no_answer", lambda *_: "it is away"),
        contextlib.redirect_stderr(errors),
        pytest.raises(SystemExit) as caught,
    ):
        cli.main()
    return caught.value.code, errors.getvalue()


def is_valid(content: bytes) -> bool:
    try:
        found: Any = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.keys() >= {"bootstrap", "deployment"}


@given(content=documents | truncated | st.binary(max_size=100), line=st.sampled_from(COMMANDS))
@example(content=json.dumps(VALID).encode(), line="status")
@example(content=json.dumps(VALID | {"bootstrap": "h:99999"}).encode(), line="status")
@example(content=json.dumps(VALID | {"bootstrap": "h\ud800:1"}).encode(), line="results q")
@example(content=json.dumps(VALID | {"bootstrap": "\uff11:\uff11"}).encode(), line="results q")
@example(content=json.dumps(VALID | {"version": 2}).encode(), line="status")
@example(content=b"[" * 2_000, line="audit climate")
def test_a_command_ends_with_a_sentence(content: bytes, line: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "run.json").write_bytes(content)

        code, reported = run(line, Path(folder))

        assert code in (2, 3)
        assert reported.startswith("slackwater: ")
        assert reported.count("\n") == 1
        assert is_valid(content) or f"{folder}/run.json" in reported


@pytest.mark.parametrize("line", COMMANDS)
def test_a_port_that_is_dead_is_named(line: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(VALID))

    code, reported = run(line, tmp_path)

    assert code == 3
    if line.startswith("ingest"):
        assert f"no deployment runs from {tmp_path}: start `slackwater up`" in reported
    else:
        assert "no broker answers at 127.0.0.1:9" in reported
        assert f"{tmp_path}/run.json" in reported
