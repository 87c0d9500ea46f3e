"""The place of `up`: the proxies of streams that the deployment file does not have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests.unit.control.test_admission import ONE, THREE, parsed

from slackwater.deployment.stored import read_stored
from slackwater.machine.launchers import ProcessSpec
from slackwater.machine.layout import Launch
from slackwater.model.deployment import Deployment, HttpInputSpec, HttpListenSpec
from slackwater.stack.place import HowToRegister, StackPlace, write_file


class Started:
    """The processes of added proxies."""

    def __init__(self) -> None:
        self.specs: dict[str, ProcessSpec] = {}

    async def start(self, spec: ProcessSpec) -> None:
        assert spec.name not in self.specs
        self.specs[spec.name] = spec

    async def end(self, name: str) -> None:
        del self.specs[name]

    @property
    def parts(self) -> dict[str, tuple[str, ...]]:
        return {name: spec.parts for name, spec in self.specs.items()}


def with_streams(*names: str) -> Deployment:
    """The recorded queries, and streams that the file does not have."""
    running = parsed(ONE, THREE)
    added = {name: replace(running.streams["b"], name=name) for name in names}
    return replace(running, streams={**running.streams, **added})


async def test_added_streams_have_proxies_beside_those_of_the_file(tmp_path: Path) -> None:
    started, file = Started(), tmp_path / "node.recorded"
    launch = Launch(file, "broker:1", tmp_path)
    how = HowToRegister(tmp_path / "d.yaml", parsed(ONE, THREE), 1)
    kept = cast(Any, SimpleNamespace(supervisor=started, launch=launch))
    place = StackPlace(kept, file, how, lambda recorded, _: recorded)

    async def settle(*names: str) -> dict[str, tuple[str, ...]]:
        deployment = with_streams(*names)
        place.take(deployment, ())
        await place.settle_proxies([f"proxy/{name}" for name in names], deployment)
        return {name: parts for name, parts in started.parts.items() if name != "proxy"}

    assert await settle() == {}
    assert started.parts == {"proxy": ("proxy/a", "proxy/b")}, "no query need read them"
    assert await settle("c", "d") == {"proxy/added-0": ("proxy/c", "proxy/d")}
    spec = started.specs["proxy/added-0"]
    assert Path(spec.command[spec.command.index("--deployment") + 1]) == file
    assert {*read_stored(file).streams} == {"a", "b", "c", "d"}
    assert await settle("c", "d", "e") == {
        "proxy/added-0": ("proxy/c", "proxy/d"),
        "proxy/added-1": ("proxy/e",),
    }
    assert await settle("d", "e") == {
        "proxy/added-0": ("proxy/d",),
        "proxy/added-1": ("proxy/e",),
    }
    assert await settle() == {}
    assert started.parts == {"proxy": ("proxy/a", "proxy/b")}


def test_names_of_files_are_relative_to_the_users_file(tmp_path: Path) -> None:
    """The written file is elsewhere, and is not written again without a change."""
    posted = replace(parsed(ONE).streams["a"], http=HttpInputSpec("a.tokens"))
    listen = HttpListenSpec(certificate_file="tls/own.pem", key_file=str(tmp_path / "own.key"))
    deployment = replace(parsed(ONE), streams={"a": posted}, http=listen)
    file, folder = tmp_path / "data.recorded", tmp_path / "given"
    write_file(file, deployment, folder)
    found = read_stored(file)
    assert found.streams["a"].http == HttpInputSpec(str(folder / "a.tokens"))
    assert found.http.certificate_file == str(folder / "tls/own.pem")
    assert found.http.key_file == str(tmp_path / "own.key")
    written = file.stat().st_ino
    write_file(file, deployment, folder)
    assert file.stat().st_ino == written
