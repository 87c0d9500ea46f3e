"""``slackwater controller``: checks the options, opens the file, and runs the controller."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from slackwater.control.control_object import Operation, ranks_of
from slackwater.control.control_state import ControlState
from slackwater.control.placing import SUSPICION, Specs, Suspicion
from slackwater.controller.address import Address
from slackwater.controller.server import Controller, ControllerConfig
from slackwater.controller.store import open_store
from slackwater.controller.tls import read_tls
from slackwater.model.durations import format_duration_us
from slackwater.model.errors import UsageError
from slackwater.protocols.iads.detector import HEARTBEAT_PERIOD_US
from slackwater.protocols.iads.topology import MEMBERS_MAX
from slackwater.runtime.security.private import open_to_others

SECRET_BYTES_MIN: Final = 16
SECRET_BYTES_MAX: Final = 4096
AFTER_US_MIN: Final = 5 * HEARTBEAT_PERIOD_US
AFTER_US_MAX: Final = 3_600_000_000
PHI_MIN: Final = 1.0
PHI_MAX: Final = 16.0


Admission = Callable[[Operation, ControlState], str]
"""Returns why an operation is refused with this state of the record; empty if it is admitted."""


def run_controller(
    name: str,
    listen: str,
    peers: str,
    data: Path,
    secret_file: Path | None,
    tls_dir: Path | None,
    admit: Admission,
    specs_of: Specs,
    suspicion: Suspicion = SUSPICION,
) -> None:
    """Run until SIGTERM or SIGINT; ``specs_of`` returns what is to run on nodes.

    Raises:
        UsageError: an option is wrong.
        EnvironmentProblem: the port is taken, or the data directory cannot be used.
    """
    made = make_config(name, listen, peers, secret_file, tls_dir)
    config = replace(made, suspicion=checked(suspicion))
    logging.getLogger("slackwater.controller").setLevel(logging.INFO)
    asyncio.run(_run(config, data, admit, specs_of))


async def _run(config: ControllerConfig, data: Path, admit: Admission, specs_of: Specs) -> None:
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stopping.set)
    store = open_store(data, config.name)
    try:
        controller: Controller = Controller(
            config,
            store,
            admit=lambda operation: admit(operation, controller.state),
            specs_of=specs_of,
        )
        await controller.run(stopping)
    finally:
        store.close()


def make_config(
    name: str, listen: str, peers: str, secret_file: Path | None, tls_dir: Path | None = None
) -> ControllerConfig:
    """The configuration from checked options.

    Raises:
        UsageError: an option is wrong, or a port that others can reach has neither secret nor TLS.
    """
    address = parse_address("--listen", listen)
    secret = read_secret(secret_file) if secret_file is not None else b""
    tls = read_tls(tls_dir) if tls_dir is not None else None
    if not secret and tls is None and not is_loopback(address.host):
        raise UsageError(
            f"--listen {address}: other machines can reach it, so --tls-dir or --secret-file is"
            " needed"
        )
    others: dict[str, Address] = {}
    for item in filter(None, peers.split(",")):
        peer, separator, where = item.partition("=")
        if not separator or not peer:
            raise UsageError(f"--peers {item!r}: must be NAME=HOST:PORT")
        if peer in others:
            raise UsageError(f"--peers: {peer!r} is there twice")
        others[peer] = parse_address("--peers", where)
    others.pop(name, None)  # so that all controllers can have the same option
    if not name or len(others) >= MEMBERS_MAX:
        raise UsageError(f"--peers: at most {MEMBERS_MAX} controllers, each with a name")
    try:
        ranks_of((name, *others))
    except ValueError as error:
        raise UsageError(f"--peers: {error}; rename one") from None
    return ControllerConfig(name, address, others, secret, tls)


def checked(suspicion: Suspicion) -> Suspicion:
    """Return the setting, if it is one with which nodes can run; else ``UsageError``."""
    low, high = (format_duration_us(us) for us in (AFTER_US_MIN, AFTER_US_MAX))
    if not AFTER_US_MIN <= suspicion.after_us <= AFTER_US_MAX:
        raise UsageError(
            f"--suspect-after {format_duration_us(suspicion.after_us)}: must be from {low}, five"
            f" heartbeats of a node, to {high}"
        )
    if not PHI_MIN <= suspicion.phi <= PHI_MAX:
        raise UsageError(
            f"--suspect-phi {suspicion.phi:g}: must be from {PHI_MIN:g} to {PHI_MAX:g}"
        )
    return suspicion


def parse_address(option: str, text: str) -> Address:
    """The address HOST:PORT; an IPv6 address is in brackets. ``option`` is for error messages."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise UsageError(f"{option} {text!r}: must be HOST:PORT with a port from 1 to 65535")
    return Address(host, int(port))


def parse_addresses(text: str) -> tuple[Address, ...]:
    """The addresses of ``--controllers``; a name before each is allowed, as in ``--peers``."""
    items = [item.rpartition("=")[2] for item in text.split(",") if item]
    if not items:
        raise UsageError("--controllers is empty: write HOST:PORT,...")
    found = tuple(dict.fromkeys(parse_address("--controllers", item) for item in items))
    if len(found) > MEMBERS_MAX:
        raise UsageError(f"--controllers: at most {MEMBERS_MAX}")
    return found


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_secret(path: Path) -> bytes:
    """The secret in a file; ``UsageError`` if the file is open to others or too short."""
    try:
        if refusal := open_to_others(path):
            raise UsageError(f"--secret-file {path}: it {refusal}")
        with path.open("rb") as file:
            secret = file.read(SECRET_BYTES_MAX + 1).strip()
    except OSError as error:
        raise UsageError(f"--secret-file {path}: {error.strerror}") from None
    if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
        raise UsageError(
            f"--secret-file {path}: must have {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes"
        )
    return secret
