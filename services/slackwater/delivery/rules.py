"""Rules, compiled: conditions over the columns of a window's rows, and rules on streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from slackwater.delivery.batches import ResultRecord
from slackwater.delivery.records import AlertValues
from slackwater.model.alerts import AlertSpec
from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.row_fields import columns_of_results, shown_of
from slackwater.primitives.expressions import Predicate, compile_predicate

REMOVED: Final = "rule removed"
Truths: TypeAlias = tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]
"""Where a condition is TRUE, and where it is FALSE."""


@dataclass(frozen=True, slots=True)
class RowColumns:
    """How the rows of a query become columns: by column its field, and its aggregate or ``""``."""

    places: Mapping[str, tuple[str, str]]

    @classmethod
    def of(cls, query: QuerySpec, fields: Sequence[str]) -> RowColumns:
        """Return those of a query with these output fields."""
        if query.window is None:
            return cls({name: (name, "") for name in fields})
        shown = shown_of(fields, query.aggregate, query.of_fields)
        places = [(field, name) for field, names in shown for name in names]
        return cls(dict(zip(columns_of_results(shown), places, strict=True)))

    def column(self, name: str, rows: Iterable[ResultRecord]) -> npt.NDArray[np.float64]:
        """Return a column; a missing value is NaN, and so is one of an earlier generation."""
        field, figure = self.places[name]
        found = [_value(row["fields"], field, figure) for row in rows]
        values = np.array(found, np.float64)  # None is NaN
        return np.where(np.isfinite(values), values, np.nan)

    def values(self, names: Iterable[str], row: ResultRecord) -> AlertValues:
        """Return these columns of one row."""
        return {name: _value(row["fields"], *self.places[name]) for name in names}


def _value(fields: Mapping[str, Any], field: str, figure: str) -> float | None:
    value = fields.get(field)
    if figure:
        value = value.get(figure) if isinstance(value, Mapping) else None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number else None


@dataclass(frozen=True, slots=True)
class AlertRule:
    """A rule on the rows of a query."""

    spec: AlertSpec
    predicate: Predicate
    columns: RowColumns
    identity: str
    """Name and definition, which are in the ids of its alerts."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that the condition uses."""
        return tuple(sorted(self.predicate.reads))

    def truths(self, rows: Sequence[ResultRecord]) -> Truths:
        """Evaluate the condition for all rows of a window at once."""
        places: dict[str, int] = {}
        index = np.array([places.setdefault(row["key"], len(places)) for row in rows], np.int64)
        columns = {name: self.columns.column(name, rows) for name in self.predicate.reads}
        return self.predicate.masks(columns, index, list(places))


@dataclass(frozen=True, slots=True)
class MissingRule:
    """A rule on a stream: it fires when windows have lacked it for ``missing_us`` of event time."""

    name: str
    stream: str
    missing_us: int
    identity: str


@dataclass(frozen=True, slots=True)
class AlertRules:
    """The rules of one query."""

    query: str
    of_rows: tuple[AlertRule, ...]
    of_streams: tuple[MissingRule, ...]
    fingerprints: Mapping[str, str]
    """The definitions by name."""
    gone: str = REMOVED
    """Why alerts end whose rule is not among these."""

    @classmethod
    def none(cls, query: str, gone: str) -> AlertRules:
        """Return no rules: what stands ends."""
        return cls(query, (), (), {}, gone)


def alert_rules(deployment: Deployment, query: QuerySpec, name: str) -> AlertRules:
    """Compile the rules of a query, whose results have this name.

    Raises:
        ExpressionError: a condition is wrong; the deployment file has been checked for this.
    """
    columns = RowColumns.of(query, deployment.output_fields(query))
    rows, streams = list[AlertRule](), list[MissingRule]()
    fingerprints = {spec.name: spec.fingerprint for spec in query.alerts}
    for spec in query.alerts:
        identity = f"{spec.name}/{fingerprints[spec.name]}"
        if spec.when is not None:
            condition = compile_predicate(spec.when, [*columns.places])
            rows.append(AlertRule(spec, condition, columns, identity))
        elif spec.stream is not None and spec.missing_us is not None:
            streams.append(MissingRule(spec.name, spec.stream, spec.missing_us, identity))
    return AlertRules(name, tuple(rows), tuple(streams), fingerprints)
