"""The option ``--web [HOST:PORT]`` of commands that run a deployment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from slackwater.machine.web import WebAddress

OPTION: Final = "--web"
WebOption = Annotated[
    str | None,
    typer.Option(
        OPTION,
        metavar="[HOST:PORT]",
        help="Also serve the live page (see `slackwater gateway`). Default: 127.0.0.1:8090, or the"
        " next free port.",
    ),
]
_ADDRESS: Final = re.compile(r"\d+|\S+:\d*")


class WebCommand(TyperCommand):
    """A command whose ``--web`` may have no value: ``up --web rooms.yaml``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; ``--web`` without an address gets an empty one."""
        return super().parse_args(ctx, [*with_value(args)])


def with_value(args: Sequence[str]) -> Iterator[str]:
    """Yield the arguments; ``--web`` that no address follows has an empty value."""
    for arg, following in zip(args, [*args[1:], ""], strict=False):
        is_bare = arg == OPTION and not _ADDRESS.fullmatch(following)
        yield f"{OPTION}=" if is_bare else arg


def choose_web(text: str | None) -> WebAddress | None:
    """Return where the page will be, and print it; None if it is not asked for.

    Raises:
        UsageError: ``text`` is no address, or other machines reach it.
        EnvironmentProblem: the address cannot be listened on.
    """
    if text is None:
        return None
    from slackwater.cli.common import emit
    from slackwater.machine.web import PORT, find_web

    web = find_web(text)
    if not text and web.port != PORT:
        emit(f"port {PORT} is in use; the page takes port {web.port}")
    return web
