"""The page that ``status`` shows to people: verdict, queries, streams, processes.

The first line tells whether all is well. What is not well has a line of its own; many problems, and
processes of one kind with the same remark, share one. Of what is well only as many lines are shown
as fit a terminal of 24 lines with ten queries and three nodes, and the rest is one line. ``-v``
shows everything, with the counters of each process.

Pure, apart from ``grid``, which makes a rich table of the same lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slackwater.codec.results import format_time
from slackwater.model.kinds import KINDS
from slackwater.model.names import ORDERER, kind_of, some_of
from slackwater.status.overview import Overview
from slackwater.status.processes import Picture, ProcessRow
from slackwater.status.queries import QueryRow, StreamRow, ago, moment

Style = Literal["good", "attention", "bad", "plain"]
STYLES: Final = {"good": "green", "attention": "yellow", "bad": "bold red", "plain": ""}
QUERIES_WELL_MAX: Final = 10
"""Exact queries that have a line each."""
PROBLEMS_MAX: Final = 3
"""Problems that have a line each."""
BEHIND_MAX: Final = 2
"""Queries behind their readings that the first line names, those that are furthest behind."""
ALIKE_MAX: Final = 2
"""Processes of one kind and with the same remark that have a line each."""
STREAMS_WELL_MAX: Final = 4
"""Streams without a remark that have a line each."""
NAME_CHARS_MIN: Final = 10
NAME_CHARS_MAX: Final = 28
PLURALS: Final = {each.name: each.plural for each in KINDS.values()} | {"exporter": "exporters"}


@dataclass(frozen=True, slots=True)
class PageLine:
    """A line of the page; without a name it is a sentence over its whole width."""

    name: str
    text: str
    style: Style = "plain"


def page(
    picture: Picture, overview: Overview | None, now_us: int, bootstrap: str, *, verbose: bool
) -> list[PageLine]:
    """Return the lines; the first one is the verdict."""
    wrong = [*picture.wrong, *(() if overview is None else overview.wrong)]
    lines = [_verdict(picture, wrong, now_us)]
    problems = wrong if verbose else shortened(wrong)
    lines += [PageLine("", f"! {problem}", "bad") for problem in problems]
    for query, windows in picture.gaps.items():
        text = f"! query {query}: {windows} windows lack readings that are lost; to list them:"
        lines.append(PageLine("", text, "attention"))
        lines.append(PageLine("", f"  slackwater results {query} --kind gap", "attention"))
    lines += _query_lines(picture, verbose=verbose)
    lines += _stream_lines(picture, verbose=verbose)
    if verbose:
        lines.append(PageLine("broker", f"ready at {bootstrap}"))
        texts = [] if overview is None else overview.lines()
        texts += [row.line(now_us) for row in picture.rows]
        return [*lines, *(PageLine("", text) for text in texts)]
    controls = () if overview is None else _control_lines(overview)
    return [*lines, *controls, *_process_lines(picture, overview, now_us)]


def plain(lines: Sequence[PageLine]) -> str:
    """Return the lines as text, for a pipe."""
    width = _width(lines)
    texts = (f"{line.name:<{width}}  {line.text}" if line.name else line.text for line in lines)
    return "\n".join(text.rstrip() for text in texts)


def rich_page(lines: Sequence[PageLine]) -> RenderableType:
    """Return the lines as tables, for a terminal; a long text continues below itself."""
    width, parts = _width(lines), list[RenderableType]()
    table: Table | None = None
    for line in lines:
        style = STYLES[line.style]
        if not line.name:
            parts.append(Text(line.text, style="bold green" if style == "green" else style))
            table = None
            continue
        if table is None:
            table = Table.grid(padding=(0, 2))
            table.add_column(width=width, no_wrap=True, overflow="ellipsis")
            table.add_column()
            parts.append(table)
        table.add_row(Text(line.name, style="bold"), Text(line.text, style=style))
    return Group(*parts)


def page_json(picture: Picture, overview: Overview | None, now_us: int) -> dict[str, Any]:
    """Return the JSON of ``--json``: everything that is known."""
    wrong = [*picture.wrong, *(() if overview is None else overview.wrong)]
    return {
        "well": not wrong,
        "problems": wrong,
        "at": format_time(now_us),
        "queries": [row.to_json() for row in picture.queries],
        "streams": [row.to_json() for row in picture.streams],
        "processes": [row.to_json() for row in picture.rows],
    } | ({} if overview is None else overview.to_json() | {"control_problems": overview.problems})


def shortened(problems: Sequence[str]) -> list[str]:
    """Return at most ``PROBLEMS_MAX`` problems, and how many more there are."""
    more = len(problems) - PROBLEMS_MAX
    rest = [f"{more} more: `slackwater status -v`"] if more > 0 else []
    return [*problems[:PROBLEMS_MAX], *rest]


def _verdict(picture: Picture, wrong: Sequence[str], now_us: int) -> PageLine:
    at = f"at {format_time(now_us)[11:19]} UTC"
    n = len(picture.queries)
    if wrong:
        some = f"{len(wrong)} problem{'s' * (len(wrong) != 1)}"
        return PageLine("", f"NOT WELL {at}: {some}", "bad")
    if not picture.rows:
        return PageLine("", f"nothing runs {at}: no heartbeat of any process", "bad")
    inexact = [row for row in picture.queries if row.state != "exact"]
    missing = sorted({stream for row in inexact for stream in row.missing})
    if behind := sorted((row for row in picture.queries if row.is_behind), key=_by_behind):
        some = ", ".join(f"{row.name} is {row.lag_phrase}" for row in behind[:BEHIND_MAX])
        more = f" and {len(behind) - BEHIND_MAX} more" * (len(behind) > BEHIND_MAX)
        return PageLine("", f"all processes run {at}, but {some}{more}", "attention")
    if inexact:
        without = f", without {some_of(missing)}" if missing else ""
        text = f"all runs {at}; {len(inexact)} of {n} queries not exact now{without}"
        return PageLine("", text, "attention")
    if late := [row.name for row in picture.queries if row.was_late(picture.event_us)]:
        text = f"all runs {at}; answers of {some_of(late)} were too late, see p99"
        return PageLine("", text, "attention")
    if remarked := [row.name for row in picture.queries if row.remarks]:
        text = f"all runs {at}; copies of {some_of(remarked)} are not apart"
        return PageLine("", text, "attention")
    queries = f"{n} quer{'y' if n == 1 else 'ies'} exact" if n else "no query is registered"
    text = f"all is well {at}: {queries}, {len(picture.rows)} processes ready"
    if any(row.state != "ready" for row in picture.rows):
        ready = sum(row.state == "ready" for row in picture.rows)
        text = f"all is well {at}: {queries}, {ready} of {len(picture.rows)} processes ready"
    return PageLine("", text, "good")


def _by_behind(row: QueryRow) -> int:
    return -row.behind_us


def _query_lines(picture: Picture, *, verbose: bool) -> Iterator[PageLine]:
    rows, event_us = picture.queries, picture.event_us
    well = [row for row in rows if _query_style(row, event_us) == "good"]
    shown = well if verbose or len(well) <= QUERIES_WELL_MAX else well[: QUERIES_WELL_MAX - 1]
    for row in rows:
        if row not in well or row in shown:
            yield PageLine(row.name, row.text(event_us), _query_style(row, event_us))
    if rest := well[len(shown) :]:
        oldest = min((row.exact_to for row in rest if row.exact_to is not None), default=None)
        until = "" if oldest is None else f", to {moment(oldest, event_us)} at least"
        yield PageLine("...", f"{len(rest)} more queries, exact{until} (-v lists them)", "good")


def _query_style(row: QueryRow, event_us: int | None) -> Style:
    if row.problem:
        return "bad"
    is_good = row.state == "exact" and not row.was_late(event_us) and not row.is_behind
    is_good = is_good and not row.remarks
    return "good" if is_good else "attention"


def _stream_lines(picture: Picture, *, verbose: bool) -> Iterator[PageLine]:
    rows, event_us = picture.streams, picture.event_us
    well = [row for row in rows if not row.needs_attention]
    shown = well if verbose or len(well) <= STREAMS_WELL_MAX else []
    for row in rows:
        if row not in well or row in shown:
            yield PageLine(row.name, row.text(event_us), _stream_style(row))
    if rest := well[len(shown) :]:
        last = [row.last_reading for row in rest if row.last_reading is not None]
        since = f", last readings {moment(min(last), event_us)} or later" if last else ""
        if last and event_us is not None:
            since = f", last readings at most {ago(event_us - min(last))}"
        none = f", {len(rest) - len(last)} without a reading yet" if len(last) < len(rest) else ""
        yield PageLine("streams", f"{len(rest)} without a remark{since}{none}")


def _stream_style(row: StreamRow) -> Style:
    if not row.runs:
        return "bad"
    return "attention" if row.needs_attention else "plain"


def _control_lines(overview: Overview) -> Iterator[PageLine]:
    """Controllers that do not answer, and views that differ; paused queries."""
    if not overview.answering:
        yield PageLine("controllers", overview.lines()[0].partition("none answers")[2], "attention")
        return
    for row in overview.controllers:
        if row.problem:
            text = f"does not answer: {row.problem}"
            yield PageLine(f"controller {row.address}", text, "attention")
    views = {(row.view_number, row.members) for row in overview.answering}
    if len(views) > 1:
        text = "more than one view: they are separated, or it changes now"
        yield PageLine("controllers", text, "attention")
    for name in overview.paused:
        yield PageLine(name, "is paused")


def _process_lines(picture: Picture, overview: Overview | None, now_us: int) -> Iterator[PageLine]:
    """A line for each node, or for all processes if there are none; then those with trouble."""
    placed: set[str] = set()
    for node in () if overview is None else overview.nodes:
        names = (
            [row.name for row in overview.fragments if row.node == node.name] if overview else []
        )
        mine = [row for row in picture.rows if row.process in names or _aggregates(row, names)]
        placed |= {row.process for row in mine}
        runs = "" if node.is_up else " (suspected)"
        text = f"{node.text()}; {_counted(mine)}{runs}"
        yield PageLine(f"node {node.name}", text, "plain" if node.is_up else "bad")
    others = [row for row in picture.rows if row.process not in placed]
    if others:
        name = "elsewhere" if placed else "processes"
        beats = [each.last_heartbeat.beat for each in others if each.last_heartbeat is not None]
        oldest = max((beat.at - beat.started_at for beat in beats), default=None)
        up = "" if oldest is None or placed else f", up {ago(oldest).removesuffix(' ago')}"
        yield PageLine(name, f"{_counted(others)}{up}")
    yield from _troubled_lines(picture.rows, now_us)


def _troubled_lines(rows: Iterable[ProcessRow], now_us: int) -> Iterator[PageLine]:
    """A line for each process that needs a remark, or for several of a kind that need the same."""
    alike: dict[tuple[str, str, bool], list[str]] = {}
    for row in rows:
        if text := row.trouble(now_us):
            alike.setdefault((kind_of(row.process), text, row.failing), []).append(row.process)
    for (kind, text, is_failing), names in alike.items():
        style: Style = "bad" if is_failing else "attention"
        if len(names) <= ALIKE_MAX:
            yield from (PageLine(name, text, style) for name in names)
        else:
            many = PLURALS.get(kind, f"{kind}s")
            yield PageLine(f"{len(names)} {many}", f"{text}: {some_of(names, 1)}", style)


def _aggregates(row: ProcessRow, names: Collection[str]) -> bool:
    """Whether it aggregates what one of these orderers writes: it runs on the same node."""
    latest = row.last_heartbeat
    return latest is not None and any(f"{ORDERER}/{each}" in names for each in latest.beat.states)


def _counted(rows: Iterable[ProcessRow]) -> str:
    """Return ``4 proxies, 2 of 3 roots ready``."""
    rows = list(rows)
    total = Counter(kind_of(row.process) for row in rows)
    ready = Counter(kind_of(row.process) for row in rows if row.state == "ready")
    parts = []
    for kind, n in total.items():
        named = kind if n == 1 else PLURALS.get(kind, f"{kind}s")
        of = f"{ready[kind]} of {n}" if ready[kind] < n else str(n)
        parts.append(f"{of} {named}")
    return f"{', '.join(parts)} ready" if parts else "no processes"


def _width(lines: Iterable[PageLine]) -> int:
    longest = max((len(line.name) for line in lines), default=0)
    return min(NAME_CHARS_MAX, max(NAME_CHARS_MIN, longest))
