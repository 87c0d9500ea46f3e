"""Checks of one query: its sources, windows and policies, and whether its bound is feasible."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from slackwater.deployment.bounds import too_many_fields
from slackwater.deployment.children import children_of
from slackwater.deployment.findings import Findings
from slackwater.deployment.mending import shaped_or_mended
from slackwater.deployment.shapes import QueryShape
from slackwater.deployment.shaping import check_name, did_you_mean, not_yet
from slackwater.deployment.sites import check_at, check_children
from slackwater.deployment.windows import window_of
from slackwater.deployment.yaml_lines import Path as Place
from slackwater.model.deployment import (
    Deployment,
    JoinSpec,
    QuerySpec,
    StreamSpec,
    WindowSpec,
)
from slackwater.model.durations import format_duration_us
from slackwater.model.row_fields import columns_of_results, joined_fields, shown_of
from slackwater.model.sites import SiteSpec
from slackwater.model.text_codes import text_names
from slackwater.primitives.aggregates import PARAMETERISED
from slackwater.primitives.expression_text import ExpressionError
from slackwater.primitives.expression_texts import check_texts
from slackwater.primitives.expressions import compile_predicate, compile_projection

JOIN_WITHIN_US_MAX: Final = 86_400_000_000
"""Maximum of ``within``. An orderer keeps the readings of this period in memory, and reads them
again at every start."""
MARGIN_DEFAULT_US: Final = 50_000
_IDENTIFIER: Final = re.compile(r'(?<=")[^"]+(?=")|\w+')
MARGIN_MICRO_BATCH_US: Final = 150_000


@dataclass(frozen=True, slots=True)
class Written:
    """The file's streams and queries by name, not yet validated."""

    streams: Mapping[str, Any]
    queries: Mapping[str, Any]


class QueryChecker:
    """Converts the queries of the file to specifications, each after the queries that it reads.

    ``streams`` and ``queries`` are the valid ones; a valid query is added to ``queries``.
    """

    def __init__(
        self,
        written: Written,
        streams: Mapping[str, StreamSpec],
        findings: Findings,
        margin_us: int,
        clock: object = "wall",
        sites: Mapping[str, SiteSpec] = MappingProxyType({}),
    ) -> None:
        """``clock``: as written in the file; ``sites``: those with a Kafka of their own."""
        self._clock, self._sites = clock, sites
        self._written = written
        self._streams = streams
        self._findings = findings
        self._margin_us = margin_us
        self.queries: dict[str, QuerySpec] = {}
        self._needed_us: dict[str, int] = {}
        """Per query the sum of the margins of all stages on the longest path to its results."""

    def check(self, name: str, value: Any) -> None:
        """Check the query of this name."""
        place: Place = ("queries", name)
        check_name(name, place, self._findings)
        if name in self._written.streams:
            self._findings.error(place, f"a stream has the same name, {name!r}")
        shape, mended = shaped_or_mended(QueryShape, value, place, self._findings)
        if shape is None:
            return
        with self._findings.ignoring(mended):
            spec = self._spec(name, shape, place)
        if spec is not None and not mended:
            self.queries[name] = spec

    def _spec(self, name: str, shape: QueryShape, place: Place) -> QuerySpec | None:
        known = self._sources(shape, place)
        sound, window = self._window(shape, place)
        self._not_yet(shape, place)
        copies = self._copies(shape, place)
        self._mergers(shape, place)
        self._policy(shape, place)
        margin = self._margin(name, shape, place)
        join = self._join(shape, place)
        if shape.at is None:
            check_children(shape, self._streams, self._sites, place, self._findings)
        self._at(shape, place)
        children, groups = children_of(shape, self._streams, self.queries, place, self._findings)
        if not known:
            self._expressions_of_unknown(shape, place)
        selected = self._expressions(shape, join, place) if known else None
        if not known or not sound:
            return None
        return QuerySpec(
            name=name,
            sources=shape.from_,
            where=shape.where,
            select=selected,
            window=window,
            aggregate=shape.aggregates,
            of_fields=shape.of_fields,
            having=shape.having,
            bound_us=shape.bound,
            margin_us=margin,
            failure_policy=shape.policy.failure,
            stabilization_policy=shape.policy.stabilization,
            replicas=shape.replicas,
            children=children,
            child_groups=groups,
            parts=shape.parts,
            copies=copies,
            mergers=shape.mergers,
            results_format=shape.results.format,
            join=join,
            at=shape.at or "",
        )

    def _at(self, shape: QueryShape, place: Place) -> None:
        """Check that all that the query reads is where the query is."""
        of_queries = {name: query.at for name, query in self.queries.items()}
        check_at(shape, self._streams, of_queries, self._sites, place, self._findings)

    def _copies(self, shape: QueryShape, place: Place) -> int:
        """Return the copies of each part: two, where they have one clock."""
        if self._clock != "data":
            return shape.copies or 2
        if shape.copies == 2:
            reason = "needs clock: wall: with clock: data each process has a clock of its own"
            self._findings.error((*place, "copies"), f"2 {reason}")
        return 1

    def _mergers(self, shape: QueryShape, place: Place) -> None:
        """Check that a query with mergers has panes, and a clock by which one is missing."""
        if not shape.mergers:
            return
        if shape.window is None:
            reason = "need a window: without one there are no panes to merge"
            self._findings.error((*place, "mergers"), f"{shape.mergers} {reason}")
        elif self._clock == "data":
            reason = "need clock: wall: with clock: data no pane is missing at a time"
            self._findings.error((*place, "mergers"), f"{shape.mergers} {reason}")

    def _sources(self, shape: QueryShape, place: Place) -> bool:
        """Check ``from``; return whether all its entries are valid streams or queries."""
        streams, queries = self._written.streams, self._written.queries
        seen: set[str] = set()
        for i, source in enumerate(shape.from_):
            at = (*place, "from", i)
            if source in seen:
                self._findings.error(at, f"{source!r} is listed twice")
            elif source not in streams and source not in queries:
                meant = did_you_mean(source, [*streams, *queries])
                self._findings.error(at, f"there is no stream or query {source!r}{meant}")
            seen.add(source)
        return all(source in self._streams or source in self.queries for source in shape.from_)

    def _join(self, shape: QueryShape, place: Place) -> JoinSpec | None:
        join = shape.join
        if join is None:
            return None
        at = (*place, "join")
        for side, source in (("left", join.left), ("right", join.right)):
            if source in self.queries:
                not_yet((*at, side), f"joins of queries ({source!r} is one)", self._findings)
        if sorted(shape.from_) != sorted((join.left, join.right)):
            reason = f"left and right must be the two sources of from, {', '.join(shape.from_)}"
            self._findings.error(at, reason)
        if join.within > JOIN_WITHIN_US_MAX:
            reason = (
                f"{format_duration_us(join.within)} is too long, an orderer keeps this period of "
                f"both streams in memory: at most {format_duration_us(JOIN_WITHIN_US_MAX)}"
            )
            self._findings.error((*at, "within"), reason)
        return JoinSpec(join.left, join.right, join.within)

    def _window(self, shape: QueryShape, place: Place) -> tuple[bool, WindowSpec | None]:
        """Return whether the window is valid, and the window: None if readings are the result."""
        if shape.window is None:
            if shape.aggregate is not None:
                reason = "needs a window: without one the readings themselves are the result"
                self._findings.error((*place, "aggregate"), reason)
            if shape.having is not None:
                reason = "needs a window: a condition on readings is where"
                self._findings.error((*place, "having"), reason)
            return shape.aggregate is None and shape.having is None, None
        if not shape.aggregate:
            self._findings.error((*place, "aggregate"), "is required with a window")
        for field, names in shape.of_fields or (("", shape.aggregates),):
            at = (*place, "aggregate", *filter(None, [field]))
            if field and not names:
                self._findings.error(at, "must not be empty: leave out a field without aggregates")
            elif len(set(names)) < len(names):
                self._findings.error(at, "lists an aggregate twice")
        window = window_of(shape.window, (*place, "window"), self._findings)
        return window is not None, window

    def _not_yet(self, shape: QueryShape, place: Place) -> None:
        if shape.results.format != "json":
            not_yet(
                (*place, "results", "format"), "results in formats other than json", self._findings
            )

    def _policy(self, shape: QueryShape, place: Place) -> None:
        """Warn about the cost of the chosen policy (DPC, section 6.1)."""
        bound = format_duration_us(shape.bound)
        delays = {"failure": "a failure", "stabilization": "corrections"}
        for phase, during in delays.items():
            if getattr(shape.policy, phase) == "delay":
                self._findings.warn(
                    (*place, "policy", phase),
                    f"delay: during {during} every answer is delayed up to the bound ({bound}), "
                    "so that fewer are tentative",
                )
        if shape.policy.stabilization == "suspend":
            self._findings.warn(
                (*place, "policy", "stabilization"),
                "suspend: no new window is answered during corrections: if these take longer than "
                f"the bound ({bound}), the bound is not kept",
            )

    def _margin(self, name: str, shape: QueryShape, place: Place) -> int:
        least = self._margin_us
        margin = least if shape.margin is None else shape.margin
        before = max((self._needed_us.get(source, 0) for source in shape.from_), default=0)
        needed = self._needed_us[name] = before + 2 * margin
        if shape.bound < needed:
            stages = (
                f"the stages of the queries that it reads, and its own 2 with a margin of "
                f"{format_duration_us(margin)},"
                if before
                else f"2 stages with a margin of {format_duration_us(margin)}"
            )
            self._findings.error(
                (*place, "bound"),
                f"{format_duration_us(shape.bound)} cannot be kept: {stages} need "
                f"{format_duration_us(needed)}",
            )
        if margin < least:
            in_batches = least == MARGIN_MICRO_BATCH_US
            mode = "in micro-batches" if in_batches else "of this pipeline"
            self._findings.warn(
                (*place, "margin"),
                f"{format_duration_us(margin)} is less than a stage {mode} takes "
                f"({format_duration_us(least)}): answers may come later than the bound",
            )
        return margin

    def _expressions(
        self, shape: QueryShape, join: JoinSpec | None, place: Place
    ) -> tuple[tuple[str, str], ...] | None:
        """Check the expressions; return those of ``select``.

        Texts are for ``where`` only: without ``select``, that of all numbers is added if there are
        texts.
        """
        known = Deployment("wall", self._streams, self.queries)
        sources = {name: known.fields_of(name) for name in shape.from_}
        of_texts = {name: text_names(s) for name, s in self._streams.items() if name in sources}
        fields = tuple(dict.fromkeys(name for names in sources.values() for name in names))
        texts = frozenset(name for names in of_texts.values() for name in names)
        if join is not None:
            sides = [self._streams.get(name) for name in (join.left, join.right)]
            fields = joined_fields(*(side.field_names if side else () for side in sides))
            texts = frozenset(joined_fields(*(text_names(side) if side else () for side in sides)))
        else:
            self._same_kind(sources, of_texts, texts, place)
        if (reason := too_many_fields(len(fields))) is not None:
            self._findings.error((*place, "from"), reason)
            return None
        checked = _Checks(fields, texts)
        if shape.where is not None:
            self._expression(shape.where, (*place, "where"), checked.condition)
        for name, text in (shape.select or {}).items():
            self._expression(text, (*place, "select", name), checked.number)
        numbers = [name for name in fields if name not in texts]
        self._aggregated_fields(shape, list(shape.select or numbers), place)
        self._having(shape, list(shape.select or numbers), place)
        if shape.select is None and texts:
            return tuple((name, f'"{name}"') for name in numbers)
        return None if shape.select is None else tuple(shape.select.items())

    def _aggregated_fields(self, shape: QueryShape, there: Sequence[str], place: Place) -> None:
        """Check that the fields of ``aggregate`` are among those of the rows."""
        for field, _ in shape.of_fields:
            if field in there:
                continue
            at = (*place, "aggregate", field)
            if field in PARAMETERISED:
                form = PARAMETERISED[field].written
                self._findings.error(at, f"is no field; in a list it is an aggregate, [{form}]")
            else:
                meant = did_you_mean(field, there) or f": there are {', '.join(there)}"
                self._findings.error(at, f"there is no field {field!r}{meant}")

    def _having(self, shape: QueryShape, fields: Sequence[str], place: Place) -> None:
        """Check the condition on the figures of a row."""
        if shape.having is None or shape.window is None or not shape.aggregates:
            return
        figures = columns_of_results(shown_of(fields, shape.aggregates, shape.of_fields))
        self._expression(
            shape.having, (*place, "having"), partial(compile_predicate, fields=figures)
        )

    def _expressions_of_unknown(self, shape: QueryShape, place: Place) -> None:
        """Check the expressions of a query of which a source is invalid, without false errors.

        Its fields may be those of any stream or query, and any of them may be a text. If others are
        invalid too, each name may be a field, and only the form of an expression is checked.
        """
        known = Deployment("wall", self._streams, self.queries)
        names = [known.fields_of(name) for name in (*self._streams, *self.queries)]
        fields = tuple(dict.fromkeys(name for some in names for name in some))
        if shape.join is not None:
            fields = joined_fields(fields, fields)
        written = self._written
        others = {name for name in written.queries if name != place[-1]}
        complete = written.streams.keys() <= self._streams.keys() and others <= self.queries.keys()

        def checks(text: str) -> _Checks:
            there = fields if complete else (*fields, *_IDENTIFIER.findall(text))
            return _Checks(there, there)

        if (where := shape.where) is not None:
            self._expression(where, (*place, "where"), checks(where).any_condition)
        for name, text in (shape.select or {}).items():
            self._expression(text, (*place, "select", name), checks(text).any_number)
        if (having := shape.having) is not None:
            there = _IDENTIFIER.findall(having)
            self._expression(having, (*place, "having"), _Checks(there, ()).any_condition)

    def _same_kind(
        self,
        sources: Mapping[str, Sequence[str]],
        of_texts: Mapping[str, Sequence[str]],
        texts: Collection[str],
        place: Place,
    ) -> None:
        """Check that a field of several sources is a text in all of them or in none."""
        for name, fields in sources.items():
            for field in texts:
                if field in fields and field not in of_texts.get(name, ()):
                    reason = f"{field!r} is a number in {name}, and a text in another source"
                    self._findings.error((*place, "from"), reason)

    def _expression(self, text: str, place: Place, compile_: Callable[[str], object]) -> None:
        try:
            compile_(text)
        except ExpressionError as error:
            shown = text if len(text) <= 60 else text[:57] + "..."
            self._findings.error(place, f"{shown!r}: {error}")


@dataclass(frozen=True, slots=True)
class _Checks:
    """Compiles the expressions of a query; each raises ``ExpressionError``."""

    fields: Sequence[str]
    texts: Collection[str]

    def condition(self, text: str) -> None:
        """Check a condition, which may compare texts."""
        check_texts(text, self.fields, self.texts)
        compile_predicate(text, self.fields, self.texts)

    def any_condition(self, text: str) -> None:
        """Check a condition over fields of an unknown kind."""
        compile_predicate(text, self.fields, self.texts)

    def any_number(self, text: str) -> None:
        """Check an expression of ``select`` over fields of an unknown kind."""
        compile_projection([("", text)], self.fields)

    def number(self, text: str) -> None:
        """Check an expression of ``select``."""
        check_texts(text, self.fields, self.texts)
        compile_projection([("", text)], self.fields)
