"""TLS of controllers' ports: an end without a certificate of the authority is refused."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.certificates import Authority, private
from tests.support.ports import free_port
from tests.support.waiting import eventually_async

from slackwater.control.control_object import JoinNode
from slackwater.controller import links
from slackwater.controller.accepting import LOG_S_MIN, _Handshakes
from slackwater.controller.address import Address
from slackwater.controller.app import make_config
from slackwater.controller.client import connect
from slackwater.controller.links import LinkError
from slackwater.controller.server import Controller, ControllerConfig
from slackwater.controller.store import open_store
from slackwater.controller.tls import LinkTls, read_tls
from slackwater.model.errors import UsageError


def directory(folder: Path, authority: Authority, name: str) -> Path:
    """A directory for ``--tls-dir``, with a certificate of the authority."""
    issued = authority.issue(name)
    made = folder / name
    made.mkdir()
    (made / "ca.pem").write_bytes(authority.pem.read_bytes())
    issued.chain.rename(made / "cert.pem")
    issued.key.rename(made / "key.pem")
    return made


@pytest.fixture(name="authority")
def _authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture(name="tls")
def _tls(tmp_path: Path, authority: Authority) -> LinkTls:
    return read_tls(directory(tmp_path, authority, "ours"))


@pytest.fixture(name="strange")
def _strange(tmp_path: Path) -> LinkTls:
    (tmp_path / "elsewhere").mkdir()
    return read_tls(directory(tmp_path, Authority(tmp_path / "elsewhere"), "strange"))


@asynccontextmanager
async def serving(folder: Path, config: ControllerConfig) -> AsyncIterator[Controller]:
    store, stopping = open_store(folder, config.name), asyncio.Event()
    made = Controller(config, store)
    running = asyncio.create_task(made.run(stopping))
    try:
        await made.started()
        yield made
    finally:
        stopping.set()
        await running
        store.close()


def alone(tls: LinkTls | None) -> ControllerConfig:
    return ControllerConfig("a", Address("127.0.0.1", free_port()), {}, b"", tls)


async def test_controllers_and_clients_of_one_authority_work_together(
    tmp_path: Path, tls: LinkTls
) -> None:
    at = {name: Address("127.0.0.1", free_port()) for name in "ab"}
    async with AsyncExitStack() as stack:
        for name in "ab":
            config = ControllerConfig(
                name, at[name], {n: a for n, a in at.items() if n != name}, b"s" * 16, tls
            )
            await stack.enter_async_context(serving(tmp_path / name, config))
        client = await stack.enter_async_context(connect([at["a"]], b"s" * 16, tls=tls))

        async def both() -> bool:
            return (await client.state()).members == ("a", "b")

        await eventually_async(both, "one view")
        assert not (await client.request(JoinNode("n1", 5))).response.refusal
        with pytest.raises(LinkError, match="the shared secret differs"):
            async with connect([at["a"]], b"t" * 16, tls=tls):
                pass


async def test_a_client_without_a_certificate_of_the_authority_is_refused(
    tmp_path: Path, tls: LinkTls, strange: LinkTls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "HELLO_S_MAX", 0.5)
    uncertified = ssl.create_default_context(cadata=(tmp_path / "ours" / "ca.pem").read_text())
    unknown = replace(strange, connecting=ssl.create_default_context())
    unknown.connecting.load_verify_locations(tmp_path / "ours" / "ca.pem")
    unknown.connecting.load_cert_chain(
        tmp_path / "strange" / "cert.pem", tmp_path / "strange" / "key.pem"
    )
    async with serving(tmp_path / "d", config := alone(tls)):
        for given, reason in (
            (replace(tls, connecting=uncertified), "refused the certificate|certificate required"),
            (unknown, "refused the certificate|unknown ca"),
            (strange, "its certificate is refused: "),
            (None, "does only one end use TLS"),
        ):
            with pytest.raises(LinkError, match=reason):
                async with connect([config.listen], tls=given) as client:
                    await client.state()
        async with connect([config.listen], tls=tls) as client:
            await client.state()


async def test_failed_handshakes_are_logged_by_the_controller_and_few_of_them(
    tmp_path: Path, tls: LinkTls, strange: LinkTls, caplog: pytest.LogCaptureFixture
) -> None:
    """Anybody who reaches the port can cause any number."""
    trusting = replace(strange, connecting=ssl.create_default_context())
    trusting.connecting.load_verify_locations(tmp_path / "ours" / "ca.pem")
    async with serving(tmp_path / "d", config := alone(tls)):
        for _ in range(3):
            with pytest.raises(LinkError):
                async with connect([config.listen], tls=trusting) as client:
                    await client.state()

        async def is_logged() -> bool:
            return bool(failures(caplog))

        await eventually_async(is_logged, "a line in the log")
        async with connect([config.listen], tls=tls) as client:
            await client.state()
    (line,) = failures(caplog)
    assert line.startswith("the TLS handshake with 127.0.0.1:")
    assert line.endswith("failed: TLS: peer did not return a certificate")


async def test_a_client_without_tls_is_logged_as_one(
    tmp_path: Path, tls: LinkTls, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path / "d", config := alone(tls)):
        reader, writer = await asyncio.open_connection(*config.listen)
        writer.write(b"no handshake" * 100)
        assert await reader.read() == b""
        writer.close()
    (line,) = failures(caplog)
    assert line.endswith("failed: it does not use TLS, and --tls-dir is given")


async def test_the_next_line_counts_the_failures_that_were_not_logged(
    tls: LinkTls, caplog: pytest.LogCaptureFixture
) -> None:
    times_s = iter((100.0, 101.0, 100.0 + LOG_S_MIN - 0.1, 100.0 + LOG_S_MIN))
    handshakes = _Handshakes(cast(Any, None), tls.accepting, 1.0)
    handshakes._loop = cast(Any, SimpleNamespace(time=lambda: next(times_s)))
    for _ in range(4):
        handshakes._note(("192.0.2.1", 5), ConnectionResetError())
    first, last = failures(caplog)
    assert first == "the TLS handshake with 192.0.2.1:5 failed: the other end closed the connection"
    assert last == f"{first} (2 more since the last such line)"


def failures(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if "TLS handshake" in line]


async def test_a_controller_without_tls_is_named_as_one(tmp_path: Path, tls: LinkTls) -> None:
    async with serving(tmp_path / "d", config := alone(None)):
        with pytest.raises(LinkError, match="it does not use TLS, and --tls-dir is given"):
            async with connect([config.listen], tls=tls):
                pass


async def test_a_certificate_for_another_host_is_refused(tmp_path: Path, tls: LinkTls) -> None:
    config = replace(alone(tls), listen=Address("127.0.0.2", free_port()))
    async with serving(tmp_path / "d", config):
        with pytest.raises(LinkError, match=r"certificate is refused: IP address mismatch"):
            async with connect([config.listen], tls=tls):
                pass


def test_a_port_that_others_can_reach_may_have_tls_in_place_of_a_secret(
    tmp_path: Path, authority: Authority
) -> None:
    with pytest.raises(UsageError, match="so --tls-dir or --secret-file is needed"):
        make_config("a", "0.0.0.0:7101", "", None)
    made = directory(tmp_path, authority, "ours")
    assert make_config("a", "0.0.0.0:7101", "", None, made).tls is not None


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("ca.pem", None, "ca.pem: No such file"),
        ("ca.pem", b"none\n", "ca.pem: no certificate in PEM"),
        ("cert.pem", None, "cert.pem: No such file"),
        ("cert.pem", b"none\n", "cert.pem and .*key.pem: not a certificate and its key"),
        ("key.pem", None, "key.pem: No such file"),
        ("key.pem", b"other", "not a certificate and its key"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, authority: Authority, name: str, content: bytes | None, text: str
) -> None:
    made = directory(tmp_path, authority, "ours")
    if content is None:
        (made / name).unlink()
    elif content == b"other":
        private(made / name, authority.issue("other").key.read_bytes())
    else:
        (made / name).write_bytes(content)
    with pytest.raises(UsageError, match=f"--tls-dir: .*{text}"):
        read_tls(made)


def test_a_key_that_others_can_read_is_refused(tmp_path: Path, authority: Authority) -> None:
    made = directory(tmp_path, authority, "ours")
    (made / "key.pem").chmod(0o644)
    with pytest.raises(UsageError, match=r"key\.pem: it .*chmod 600"):
        read_tls(made)
