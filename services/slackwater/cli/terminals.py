"""Which terminals can show something in place.

A dumb terminal (``TERM=dumb``: an editor's shell, many CI runs) is a terminal that moves no cursor.
rich draws nothing there before the end, so what is shown in place elsewhere is printed line by line
on it, as in a pipe.
"""

from __future__ import annotations

from rich.console import Console


def repaints(console: Console) -> bool:
    """Return whether a live table or a bar can be drawn."""
    return console.is_terminal and not console.is_dumb_terminal
