"""Joins expected and actual results, and reports the differences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as sf

from slackwater.codec.results import format_time
from slackwater.judge.calendars import judged_windows
from slackwater.judge.having import HavingJudge, Spread, spread_of
from slackwater.judge.rounding import outside
from slackwater.model.deployment import QuerySpec
from slackwater.model.row_fields import OfFields
from slackwater.primitives.aggregates import AGGREGATES
from slackwater.primitives.expression_sql import KEY_COLUMN
from slackwater_spark.audit.results import AuditedAnswers
from slackwater_spark.audit.source_logs import AcceptedLogs

FINDINGS_MAX = 20
"""Maximum sentences kept; all findings are counted."""
ROWS_JUDGED_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Scope and findings of an audit. Times are in us since the epoch.

    ``lost``: expected rows that are absent, and windows without an answer. ``doubled``: rows given
    more than once. ``wrong``: rows with other figures, unexpected rows, and windows answered more
    than once or before their end. ``gapped``: rows that report readings deleted by retention; they
    are not compared. ``truncated``: source logs whose beginning was deleted; windows before
    ``start_us`` were excluded.
    """

    query: str
    start_us: int
    end_us: int
    windows: int
    rows: int
    readings: int
    lost: int
    doubled: int
    wrong: int
    gapped: int
    truncated: tuple[str, ...]
    findings: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the stable results equal the batch computation."""
        return not (self.lost or self.doubled or self.wrong)


def compare_rows(
    wanted: DataFrame, results: DataFrame, spec: QuerySpec, start: int, end: int
) -> DataFrame:
    """Join expected and actual results, one row for each window and key."""
    assert spec.window is not None
    # ``end`` is the start of the first window that is not compared.
    within = f"window_start >= {start} and window_start < {end}"
    given = results.where("kind = 'stable'").where(within)
    given = given.groupBy("window_start", KEY_COLUMN).agg(
        sf.count("*").alias("times"),
        sf.first("fields").alias("given"),
        sf.max(sf.expr("lost is not null")).alias("gapped"),
    )
    fields = [name for name in wanted.columns if name not in ("window_start", KEY_COLUMN)]
    wanted = wanted.where(within).select(
        "window_start", KEY_COLUMN, sf.struct(*fields).alias("wanted")
    )
    return wanted.join(given, ["window_start", KEY_COLUMN], "full_outer")


def make_report(
    spec: QuerySpec,
    outputs: Sequence[str],
    compared: DataFrame,
    answers: AuditedAnswers,
    early: Sequence[tuple[int, int, int]],
    log: AcceptedLogs,
    start: int,
    end: int,
) -> AuditReport:
    """Count the rows by verdict and describe the first differences."""
    assert spec.window is not None
    counts = dict.fromkeys(("rows", "lost", "doubled", "wrong", "gapped"), 0)
    findings = list(answers.findings)
    findings += (
        f"part {part}: {format_time(window)} was stable {lead / 1e6:.3f} s before its end"
        for part, window, lead in early
    )
    shown = spec.shown(outputs)
    having = None if spec.having is None else HavingJudge(spec.having, shown)
    rows = compared.toLocalIterator()
    while portion := list(islice(rows, ROWS_JUDGED_AT_ONCE)):
        expected = _with_row(portion, having, shown)
        for row, (is_required, is_allowed) in zip(portion, expected, strict=True):
            counts["rows"] += is_required or row.given is not None
            verdict, why = _judge(row, dict(shown), is_required=is_required, is_allowed=is_allowed)
            if verdict is not None:
                counts[verdict] += 1
            if why is not None:
                findings.append(f"{format_time(row.window_start)} {row[KEY_COLUMN]}: {why}")
    return AuditReport(
        query=spec.name,
        start_us=start,
        end_us=end,
        windows=max(0, judged_windows(spec.window).between(start, end)),
        rows=counts["rows"],
        readings=log.readings,
        lost=counts["lost"] + answers.unanswered,
        doubled=counts["doubled"],
        wrong=counts["wrong"] + answers.twice + len(early),
        gapped=counts["gapped"],
        truncated=log.truncated,
        findings=tuple(findings[:FINDINGS_MAX]),
    )


def _with_row(
    portion: Sequence[Row], having: HavingJudge | None, shown: OfFields
) -> list[tuple[bool, bool]]:
    """Return whether each window and key must have a row, and whether it may have one."""
    if having is None:
        return [(row.wanted is not None, row.wanted is not None) for row in portion]
    places = {field: place for place, (field, _) in enumerate(shown)}
    there = [row for row in portion if row.wanted is not None]
    spreads = [
        [_spread(name, row.wanted[places[field]]) for field, name in having.figures]
        for row in there
    ]
    keys = [row[KEY_COLUMN] for row in there]
    verdicts = iter(having.verdicts(list(zip(keys, spreads, strict=True))))
    given = [row for row in portion if row.given is not None]
    own = iter(having.holds([(row[KEY_COLUMN], row.given) for row in given]))
    found = []
    for row in portion:
        verdict = False if row.wanted is None else next(verdicts)
        holds = row.given is None or next(own)
        found.append((verdict is True, verdict is not False and holds))
    return found


def _spread(name: str, figures: Row) -> Spread:
    number = figures[name]
    return spread_of(
        name,
        number if number is not None and math.isfinite(number) else None,
        count=figures["_count"],
        scale=figures["_scale"] or 0.0,
        deviation=(figures["_var"] or 0.0) ** 0.5,
    )


def _judge(
    row: Row, shown: Mapping[str, Sequence[str]], *, is_required: bool, is_allowed: bool
) -> tuple[str | None, str | None]:
    """Return the verdict on a window and key: the class it counts under, and a phrase."""
    if row.gapped:
        return "gapped", None
    if row.given is None:
        return ("lost", "no row") if is_required else (None, None)
    if row.wanted is None:
        return "wrong", "a row without readings"
    if row.times > 1:
        return "doubled", f"{row.times} rows"
    if not is_allowed:
        return "wrong", "a row that does not satisfy having"
    wanted = dict(zip(shown, row.wanted, strict=True))
    different = _different(wanted, row.given, shown)
    return (None, None) if different is None else ("wrong", different)


def _different(
    wanted: Mapping[str, Row],
    given: Mapping[str, Mapping[str, float | None]],
    shown: Mapping[str, Sequence[str]],
) -> str | None:
    if wanted.keys() != given.keys():
        return f"fields {sorted(given)}, not {sorted(wanted)}"
    for name, figures in wanted.items():
        for figure in shown[name]:
            want, got = figures[figure], given[name].get(figure)
            if want is not None and not math.isfinite(want):
                want = None  # it has overflowed
            if want is None or got is None:
                rounding = AGGREGATES[figure].rounding
                if want is not got and not rounding.may_overflow(
                    figures["_count"], figures["_scale"] or 0.0
                ):
                    return f"{name}.{figure} is {got}, not {want}"
            elif abs(want - got) > _slack(figure, figures, want):
                return f"{name}.{figure} is {got!r}, not {want!r}"
        if found := outside(given[name]):
            return f"{name}.{found}"
    return None


def _slack(figure: str, figures: Row, want: float) -> float:
    """Return the difference that summation order can cause in doubles of this magnitude."""
    rounding = AGGREGATES[figure].rounding
    if rounding.is_selected:
        return 0.0
    spread = (figures["_var"] or 0.0) ** 0.5
    return float(rounding.error(want, figures["_count"], figures["_scale"] or 0.0, spread))
