"""``slackwater watch QUERY``: the demo's live table for one's own query.

A row is a window, a column is a key, a cell is one figure of one field. In a pipe it prints a line
for each answer. The board and its table are those of the demo (``slackwater.cli.screen``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rich.console import Console, RenderableType
from rich.live import Live

from slackwater.cli.common import emit, warn
from slackwater.cli.screen import Board, PlainLines, render
from slackwater.cli.show import registered, registered_query
from slackwater.cli.tables import visible
from slackwater.cli.terminals import repaints
from slackwater.client.follow import Client, From
from slackwater.deployment.windows import describe_window
from slackwater.model.errors import UsageError
from slackwater.model.names import Names, base_of
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.registry import QueryDefinition
from slackwater.status.queries import streams_of

FRAMES_PER_S: Final = 5
KEYS_MAX: Final = 16
"""Columns at most; a terminal of 80 has room for four."""
KEY_COLUMNS: Final = 9
OTHER_COLUMNS: Final = 48
"""The window, the answer and the borders."""
ROWS_BESIDES: Final = 8
"""Rows of the table that are no windows."""


class TitledLines:
    """Prints the title before the first answer, and then a line for each answer, for a pipe."""

    def __init__(self, watched: Watched, emit: Callable[[str], None]) -> None:
        self._watched, self._print = watched, emit
        self._lines = PlainLines(watched.board, watched.keys, emit)
        self._is_titled = False

    def saw(self, record: dict[str, Any], seen_at: int) -> None:
        """Take a record."""
        if not self._is_titled and self._watched.board.figure != ("", ""):
            self._print(self._watched.title)
            self._is_titled = True
        self._lines.saw(record, seen_at)


class Watched:
    """The board of a query, whose columns are the first keys that it answers. Thread-safe."""

    def __init__(
        self,
        query: QueryDefinition,
        figure: str,
        keys: Sequence[str],
        keys_max: int,
        rows: int,
        streams: Sequence[str] = (),
    ) -> None:
        window = query.spec.window
        assert window is not None
        self.board = Board(
            base_of(query.spec.name), window.slide_us, ("", ""), max(1, rows), streams
        )
        self.keys: list[str] = list(keys)
        self.others: set[str] = set()
        self._figure = figure
        self._figures = 0
        """How many an answer has, of which one is in the table."""
        self._keys_max = len(keys) or keys_max
        self._note = f"waiting for the next answer: {describe_window(window)}"
        self._lock = threading.Lock()

    def apply(self, record: Mapping[str, Any], now_us: int, then: Callable[..., object]) -> None:
        """Take a record: ``then`` applies it to the board."""
        with self._lock:
            if record["kind"] in {"stable", "tentative"}:
                self._prepare(record)
            if record["kind"] == "boundary":
                self._note = ""
            if record["kind"] == "rec_done" and self.board.is_correcting:
                self._note = "every tentative answer has been replaced by the exact one"
            then(record, now_us)

    def _prepare(self, record: Mapping[str, Any]) -> None:
        """Choose the figure, and take the key as a column if there is room."""
        if self.board.figure == ("", ""):
            self.board.figure = choose(self._figure, record["fields"])
            self._figures = sum(map(len, record["fields"].values()))
        key = record["key"]
        if key in self.keys or key in self.others:
            return
        if len(self.keys) < self._keys_max:
            self.keys.append(key)
            self.keys.sort()
        elif len(self.others) < KEYS_OTHER_MAX:
            self.others.add(key)

    @property
    def title(self) -> str:
        """The query, and what the table has of it: ``climate: avg of temperature``."""
        name, figure = self.board.figure
        if not name:
            return visible(self.board.query)
        others = f" (1 of {self._figures} figures: --figure)" if self._figures > 1 else ""
        more = f"; {len(self.others)} more keys (--key)" if self.others else ""
        return visible(f"{self.board.query}: {figure} of {name}{others}{more}")

    def picture(self) -> RenderableType:
        """Return the table as it is now."""
        with self._lock:
            title = self.title
            shown = [visible(key) for key in self.keys]
            return render(self.board, shown, title, self._note, None, SystemClock().now_us())


KEYS_OTHER_MAX: Final = 10_000
"""Keys without a column that are counted."""


def choose(figure: str, fields: Mapping[str, Any]) -> tuple[str, str]:
    """Return the field and the aggregate of ``FIELD.AGGREGATE``; without it, the average if any.

    Raises:
        UsageError: an answer has no such figure; its figures are listed.
    """
    there = {f"{name}.{each}": (name, each) for name, given in fields.items() for each in given}
    if figure:
        if figure not in there:
            raise UsageError(f"--figure {figure}: choose among {', '.join(there)}")
        return there[figure]
    return next((each for each in there.values() if each[1] == "avg"), next(iter(there.values())))


def run_watch(
    cluster: Cluster, names: Names, name: str, figure: str, keys: Sequence[str], from_: str
) -> None:
    """Run the command ``watch``, until Ctrl-C.

    Raises:
        UsageError: there is no such query, it has no window, or several parts.
    """
    if from_ not in {"beginning", "end"}:
        raise UsageError(f"--from {from_}: choose beginning or end")
    query = registered_query(cluster, names, name)
    if query.spec.window is None:
        raise UsageError(
            f"query {name} has no window: `slackwater results {name} --follow` prints its rows"
        )
    if query.spec.parts > 1:
        raise UsageError(
            f"query {name} has {query.spec.parts} parts, each with windows of its own:"
            f" `slackwater results {name} --follow` prints them"
        )
    console = Console()
    room = max(1, min(KEYS_MAX, (console.width - OTHER_COLUMNS) // KEY_COLUMNS))
    rows = console.height - ROWS_BESIDES if repaints(console) else 16
    keys_max = room if repaints(console) else KEYS_MAX
    streams = streams_of(query, registered(cluster, names))
    watched = Watched(query, figure, keys, keys_max, rows, streams)
    start: From = "beginning" if from_ == "beginning" else "end"
    stream = Client(cluster, prefix=names.prefix).follow(watched.board.query, from_=start)
    clock = SystemClock()
    with stream:
        if not stream.has_begun:
            warn(f"slackwater: {name} has no results yet; waiting")
        try:
            if repaints(console):
                with Live(
                    get_renderable=watched.picture, console=console, refresh_per_second=FRAMES_PER_S
                ):
                    for record in stream:
                        watched.apply(record, clock.now_us(), watched.board.apply)
            else:
                lines = TitledLines(watched, emit)
                for record in stream:
                    watched.apply(record, clock.now_us(), lines.saw)
        except KeyboardInterrupt:
            pass  # the normal end of watching
