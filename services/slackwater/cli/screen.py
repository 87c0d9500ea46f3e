"""Display of a running query: windows that become tentative, undone and exact.

``Board`` holds the last windows and their state; it is pure, with times as arguments. ``render``
makes a rich table of it, ``PlainLines`` prints lines for a pipe. An UNDO and the answers that
replace the revoked ones are in one transaction and arrive within a millisecond; the board shows the
undone state for 0.6 s so that it is visible.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from slackwater.cli.tables import short_time, without
from slackwater.codec.results import format_time, parse_time

if TYPE_CHECKING:
    from slackwater.rehearsal.plan import RehearsalPlan  # `watch` needs no files of readings

State = Literal["tentative", "undone", "exact", "corrected"]
UNDONE_SHOWN_US: Final = 600_000
STYLES: Final[Mapping[State, str]] = {
    "tentative": "yellow",
    "undone": "red strike",
    "exact": "green",
    "corrected": "bold green",
}


@dataclass(slots=True)
class ScreenLine:
    """A window's current state."""

    start: int
    state: State
    values: dict[str, str]
    missing: tuple[str, ...] = ()
    skipped: bool = False
    undone_at: int | None = None
    before: dict[str, str] = field(default_factory=dict)

    def shown(self, now: int) -> State:
        """Return the state to display."""
        held = self.undone_at is not None and now < self.undone_at + UNDONE_SHOWN_US
        return "undone" if held else self.state


class Board:
    """The last windows of one query with one part; ``figure`` is the (field, aggregate) shown."""

    def __init__(
        self,
        query: str,
        slide_us: int,
        figure: tuple[str, str],
        windows_max: int = 16,
        streams: Collection[str] = (),
    ) -> None:
        """``streams``: all that the query reads, if they are known."""
        self.streams = frozenset(streams)
        self.query = query
        self.slide_us = slide_us
        self.figure = figure
        self.windows_max = windows_max
        self.lines: dict[int, ScreenLine] = {}
        self.counts: dict[str, int] = {"exact": 0, "tentative": 0, "undone": 0, "corrected": 0}
        self._values: dict[str, str] = {}
        self._tentative: set[int] = set()
        self._revoked: set[int] = set()
        self.undone: tuple[int, int] | None = None
        """The first and the last window of the latest UNDO that were on the board; None if none.

        A reader that begins in the middle gets the UNDO of earlier answers.
        """
        self.is_correcting = False
        """Whether answers of the board were undone, and not all of them are exact."""

    def apply(self, record: Mapping[str, Any], now: int) -> ScreenLine | None:
        """Apply a record; return the window's line if it completes an answer."""
        if record["query"] != self.query:
            return None
        kind = record["kind"]
        if kind in {"stable", "tentative"}:
            field_name, aggregate = self.figure
            value = record["fields"][field_name][aggregate]
            self._values[record["key"]] = "-" if value is None else f"{value:.2f}"
        elif kind == "boundary":
            return self._answer(record, now)
        elif kind == "undo":
            self._undo(parse_time(record["undo_from"]), parse_time(record["undo_to"]), now)
        elif kind == "rec_done":
            self.is_correcting = False
        return None

    def _answer(self, record: Mapping[str, Any], now: int) -> ScreenLine:
        """Update a window, or for a run of empty windows the first and those already shown."""
        start = parse_time(record["window_start"])
        last = start + (record["windows"] - 1) * self.slide_us
        values, self._values = self._values, {}
        is_stable = record["label"] == "stable"
        replaced = {at for at in self._revoked if is_stable and start <= at <= last}
        self._revoked -= replaced
        if not is_stable:
            self._tentative.update(range(start, last + 1, self.slide_us))
        self.counts["corrected"] += len(replaced)
        self.counts["exact" if is_stable else "tentative"] += record["windows"] - len(replaced)
        for at in {start, *(at for at in self.lines if start <= at <= last)}:
            state: State = (
                "tentative" if not is_stable else "corrected" if at in replaced else "exact"
            )
            lacks, skipped = tuple(record["missing"]), record.get("skipped", False)
            line, known = ScreenLine(at, state, values, lacks, skipped), self.lines.get(at)
            if known is not None:
                line.undone_at, line.before = known.undone_at, known.values
            self.lines[at] = line
        answered = self.lines[start]
        for old in sorted(self.lines)[: -self.windows_max]:
            del self.lines[old]
        return answered

    def _undo(self, first: int, last: int, now: int) -> None:
        for start, line in self.lines.items():
            if first <= start <= last and line.state == "tentative":
                line.state, line.undone_at = "undone", now
        undone = {at for at in self._tentative if first <= at <= last}
        self._tentative -= undone
        self._revoked |= undone
        self.counts["undone"] += len(undone)
        self.undone = (min(undone), max(undone)) if undone else None
        self.is_correcting |= bool(undone)


def render(
    board: Board, keys: Sequence[str], title: str, note: str, done: float | None, now: int
) -> RenderableType:
    """Render the whole display: events, windows, progress; ``done`` is None if it has no end."""
    table = Table(title=title, title_justify="left", expand=False, pad_edge=False)
    table.add_column("window")
    for key in keys:
        table.add_column(key, justify="right")
    table.add_column("answer", min_width=34)
    for start in sorted(board.lines):
        line = board.lines[start]
        state = line.shown(now)
        values = line.before if state == "undone" and line.before else line.values
        style = STYLES[state]
        cells = [Text(values.get(key, "·"), style=style) for key in keys]
        table.add_row(
            short_time(format_time(start))[-8:],
            *cells,
            Text(_text(line, state, board.streams), style),
        )
    table.title_style = "bold"
    counts = board.counts
    summary = (
        f"{counts['exact'] + counts['corrected']} exact, {counts['tentative']} tentative,"
        f" {counts['undone']} undone, {counts['corrected']} corrected"
    )
    below: list[RenderableType] = [Text(note or " ", style="bold yellow")]
    if done is not None:
        bar = Table.grid(padding=(0, 1))
        bar.add_row(ProgressBar(total=1.0, completed=done, width=50), Text(f"{done:4.0%}"))
        below.append(bar)
    return Group(table, *below, Text(summary))


def _text(line: ScreenLine, state: State, streams: Set[str]) -> str:
    """Return the words of an answer; ``streams``: all that the query reads, if they are known."""
    match state:
        case "tentative":
            label = "tentative, skipped" if line.skipped else "tentative"
            # A stream whose key has its name, as in the demo, is partly in if that key has a value;
            # if all streams are missing, values are of their readings.
            partly = [stream for stream in line.missing if stream in line.values]
            if line.values and streams and streams <= {*line.missing}:
                partly = [*line.missing]
            return ", ".join(filter(None, [label, without(line.missing, partly)]))
        case "undone":
            return "undone"
        case "corrected":
            return "exact (corrected)"
        case "exact":
            return "exact"


class PlainLines:
    """Prints one line per answer, in the order read, for a pipe."""

    def __init__(self, board: Board, keys: Sequence[str], emit: Callable[[str], None]) -> None:
        self._board, self._keys, self._print = board, keys, emit

    def began(self, plan: RehearsalPlan, anchor_wall: int) -> None:
        """Do nothing."""

    def saw(self, record: dict[str, Any], seen_at: int) -> None:
        """Print a line for each completed answer, undo and end of corrections."""
        was_correcting = self._board.is_correcting
        line = self._board.apply(record, seen_at)
        if line is not None:
            values = "  ".join(f"{key} {line.values.get(key, '·'):>6}" for key in self._keys)
            when = short_time(format_time(line.start))[-8:]
            self._print(f"{when}  {values}  {_text(line, line.state, self._board.streams)}")
        elif record["kind"] == "undo" and self._board.undone is not None:
            first, last = (short_time(format_time(at))[-8:] for at in self._board.undone)
            self._print(f"{first}  to {last} undone, exact answers follow")
        elif record["kind"] == "rec_done" and was_correcting:
            self._print("          all corrected")

    def happened(self, text: str, at_us: int) -> None:
        """Print the begin or end of a fault."""
        self._print(f"--------  {text}")

    def tick(self, now_us: int) -> None:
        """Do nothing."""

    def phase(self, text: str) -> None:
        """Print the current phase."""
        self._print(f"... {text}")

    def waits(self, text: str) -> None:
        """Print what the start waits for."""
        self._print(f"... {text}")
