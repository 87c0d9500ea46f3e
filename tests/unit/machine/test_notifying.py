"""The notifier as a process of `up`: its command, and what it refuses before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from slackwater.cli.app import app
from slackwater.machine.layout import Launch
from slackwater.machine.notifying import notifier_spec
from slackwater.runtime.service.settings import settings


def test_its_receivers_are_in_the_environment_never_in_the_command() -> None:
    launch = Launch(Path("d"), "kafka:1", Path("/data"), python="py", kafka_config=Path("/k"))
    spec = notifier_spec(launch, "plant-7")
    assert spec.name == "notifier"
    assert spec.command == (
        *("py", "-m", "slackwater.cli", "notify", "--bootstrap", "kafka:1"),
        *("--data-dir", "/data", "--prefix", "plant-7"),
    )
    assert spec.env["SLACKWATER_KAFKA_CONFIG"] == "/k"


@pytest.mark.parametrize(
    ("expected", "given"),
    [
        ("there is no receiver: set SLACKWATER_ALERTMANAGER_URL", {}),
        ("the URL of the webhook must be", {"SLACKWATER_WEBHOOK_URL": "ftp://secret@host/"}),
    ],
)
def test_up_refuses_to_notify_nobody(
    expected: str, given: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ALERTMANAGER_URL", "WEBHOOK_URL"):
        monkeypatch.delenv(f"SLACKWATER_{name}", raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings.cache_clear()
    file = tmp_path / "d.yaml"
    file.write_text("apiVersion: slackwater/v1\n")
    command = ["up", "--notify", str(file), "--data-dir", str(tmp_path / "data")]
    done = CliRunner().invoke(app, command)
    settings.cache_clear()
    printed = str(done.exception) + done.output
    assert done.exit_code != 0
    assert expected in printed
    assert "secret" not in printed
    assert not (tmp_path / "data").exists()
