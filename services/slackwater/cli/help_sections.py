"""``slackwater --help``: the commands in sections, each with its complete first sentence."""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from typer import Exit
from typer.core import TyperGroup

SECTIONS: Final = {
    "Begin": ("demo", "init", "plan", "rehearse", "doctor"),
    "Run": ("up", "ingest", "send", "backfill", "notify", "topics"),
    "Look": ("gateway", "results", "watch", "status", "alerts", "quarantine", "audit"),
    "Change": ("query", "sql"),
    "Several machines, secured clusters": ("node", "controller", "acl"),
}


class SectionedGroup(TyperGroup):
    """A group whose help lists the commands by section."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command, which is done when the reader of its pipe has gone, as with ``| head``.

        typer would end it with 1, the exit code of a failed check.
        """
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            # The interpreter writes what is left in the buffer at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise Exit from error

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the commands in the order of the sections, then any others."""
        known = super().list_commands(ctx)
        ordered = [name for names in SECTIONS.values() for name in names if name in known]
        return [*ordered, *(name for name in known if name not in ordered)]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each section; click would cut the sentences off at the terminal's width."""
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in (*SECTIONS, "Others")}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            title = next((t for t, names in SECTIONS.items() if name in names), "Others")
            sections[title].append((name, command.get_short_help_str(limit=1_000)))
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
