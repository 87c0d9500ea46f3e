"""Statements as the mapping that the deployment file is read into, with the file's own checks.

There is no second set of checks: CREATE and SET become entries of the mapping, which
``slackwater.deployment.check`` converts to a deployment. Its findings are placed in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from slackwater.deployment.check import check_content
from slackwater.deployment.findings import Findings
from slackwater.deployment.yaml_lines import YAML_ENTRIES_MAX, Document
from slackwater.deployment.yaml_lines import Path as Place
from slackwater.model.deployment import Deployment, StreamSpec
from slackwater.model.errors import DeploymentError
from slackwater.sql.parser import ParsedText, parse
from slackwater.sql.statements import Create, ExpressionTokens, Setting, place_of
from slackwater.sql.tokens import Source

_ONE: Final = {"streams": "stream", "queries": "query", "alerts": "alert"}
_CLAUSES: Final = {
    "from": "FROM",
    "where": "WHERE",
    "select": "SELECT",
    "aggregate": "SELECT",
    "having": "HAVING",
    "bound": "EMIT WITHIN",
    "join": "JOIN",
}


_POSITION: Final = re.compile(r" \(at character (\d+)\)$")
_ELSEWHERE: Final = -1
"""Place of what the text does not declare, but runs already."""


class SqlFindings(Findings):
    """Findings of a text: errors are kept with the character that they are at."""

    def __init__(
        self, source: Source, spots: Mapping[Place, int], tokens: ExpressionTokens
    ) -> None:
        super().__init__(Document(), source.where)
        self._source = source
        self._spots = spots
        self._tokens = tokens

    def found(self) -> list[tuple[int, str]]:
        """Return the errors with their places."""
        return [(max(at, 0), reason) for at, reason in self._errors]

    def warnings(self) -> tuple[str, ...]:
        """Return the warnings about what the text declares, in its order."""
        found = (each for each in sorted(self._warnings) if each[0] >= 0)
        return tuple(self._source.report(at, reason) for at, reason in found)

    def _reported(self, place: Place, reason: str) -> tuple[int, str]:
        at, shown = place, ""
        while at and at not in self._spots:
            at = at[:-1]
        if len(place) > 1 and place[0] in _ONE:
            section, name, *inside = place
            if section == "queries" and inside:
                inside[0] = _CLAUSES.get(str(inside[0]), inside[0])
            what = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in inside).lstrip(".")
            shown = f"{_ONE[str(section)]} {name}{', ' + what if what else ''}: "
        elif place:
            shown = f"{'.'.join(map(str, place))}: "
        spot = self._spots.get(at, _ELSEWHERE)
        if (within := _POSITION.search(reason)) is not None and spot in self._tokens:
            spot = place_of(spot, int(within[1]), self._tokens)
            reason = reason[: within.start()]
        return spot, f"{shown}{reason}"


@dataclass(slots=True)
class Draft:
    """A deployment that CREATE and SET add to.

    ``content`` is as a deployment file; ``running`` has the streams that are there already, whose
    declaration stays.
    """

    source: Source
    content: dict[str, Any] = field(default_factory=dict)
    running: Mapping[str, StreamSpec] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)
    errors: list[tuple[int, str]] = field(default_factory=list)
    spots: dict[Place, int] = field(default_factory=dict)
    tokens: dict[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    broken: list[Place] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.content = {
            "apiVersion": "slackwater/v1",
            **self.content,
            "streams": dict(self.content.get("streams", {})),
            "queries": dict(self.content.get("queries", {})),
            "alerts": dict(self.content.get("alerts", {})),
        }

    def add(self, statement: Create | Setting) -> None:
        """Add what a statement declares."""
        if isinstance(statement, Setting):
            self._set(statement)
            return
        section, name = statement.section, statement.name
        place: Place = (section, name)
        entries = self.content[section]
        if place in self.spots and not statement.replaces:
            line = self.source.place(self.spots[place])[0]
            reason = f"{_ONE[section]} {name} is created twice, first in line {line}"
            self.errors.append((statement.at, reason))
            return
        if section != "streams" and name in entries and not statement.replaces:
            what = "QUERY {} AS" if section == "queries" else "ALERT {} WITH"
            reason = f"{_ONE[section]} {name} is there: CREATE OR REPLACE {what.format(name)} ..."
            reason += " changes it"
            self.errors.append((statement.at, reason))
            return
        if name not in entries and len(entries) == YAML_ENTRIES_MAX:
            self.errors.append((statement.at, f"more than {YAML_ENTRIES_MAX} {section}"))
            return
        entries[name] = statement.content
        self.spots = {at: spot for at, spot in self.spots.items() if at[:2] != place}
        self.spots[place] = statement.at
        self.spots |= {(*place, *inside): spot for inside, spot in statement.spots.items()}
        self.tokens |= statement.tokens
        if statement.is_broken:
            self.broken.append(place)

    def drop(self, query: str) -> None:
        """Take a query out."""
        self.content["queries"].pop(query, None)
        self.spots.pop(("queries", query), None)

    def drop_alert(self, alert: str) -> None:
        """Take an alert out."""
        self.content["alerts"].pop(alert, None)
        self.spots.pop(("alerts", alert), None)

    def check(self, *, micro_batch: bool = False) -> Deployment | None:
        """Return the deployment; None after errors, which are in ``errors``, or without queries."""
        findings = SqlFindings(self.source, self.spots, self.tokens)
        ignored = list(self.broken)
        if not self.content["queries"]:
            ignored.append(("queries",))
        if not self.content["streams"] and self.content["queries"]:
            ignored.append(("streams",))  # each query has an error about what it reads
        with findings.ignoring(ignored):
            deployment = check_content(self.content, findings, micro_batch=micro_batch)
        self.errors += findings.found()
        self.warnings |= dict.fromkeys(findings.warnings())
        if deployment is None or findings.any() or self.broken:
            return None
        streams = dict(deployment.streams)
        for name, spec in self.running.items():
            at = self.spots.get(("streams", name))
            if at is not None and streams[name] != spec:
                reason = (
                    f"stream {name} is read with another declaration, which stays:"
                    f" SHOW CREATE STREAM {name} prints it; another declaration needs another name"
                )
                self.errors.append((at, reason))
            streams[name] = spec
        return Deployment(
            deployment.clock, streams, deployment.queries, deployment.names, deployment.http
        )

    def _set(self, setting: Setting) -> None:
        place: Place = (setting.name,)
        if place in self.spots:
            line = self.source.place(self.spots[place])[0]
            self.errors.append((setting.at, f"{setting.name} is set twice, first in line {line}"))
            return
        self.content[setting.name] = setting.content
        self.spots |= {(*place, *inside): spot for inside, spot in setting.spots.items()}
        self.spots[place] = setting.at


@dataclass(frozen=True, slots=True)
class Declared:
    """A valid deployment, its content as of a deployment file, and its warnings."""

    deployment: Deployment
    content: Mapping[str, Any]
    warnings: Sequence[str]


def failure(source: Source, errors: Iterable[tuple[int, str]]) -> DeploymentError:
    """Return one exception with all errors, in the order of the text, up to a bound."""
    return DeploymentError(source.reports(list(errors)))


def declare(parsed: ParsedText, *, micro_batch: bool = False) -> Declared:
    """Return the deployment that a text declares by itself.

    Raises:
        DeploymentError: the text has errors, or statements that declare nothing.
    """
    draft = Draft(parsed.source)
    errors = list(parsed.errors)
    for each in parsed.statements:
        if isinstance(each, Create | Setting):
            draft.add(each)
        else:
            reason = (
                "declares nothing: a deployment is made of CREATE STREAM, QUERY and ALERT, and SET"
            )
            errors.append((each.at, reason))
    deployment = draft.check(micro_batch=micro_batch) if parsed.all_named else None
    errors += draft.errors
    if not errors and not draft.content["queries"]:
        errors.append((0, "there is no CREATE QUERY: a deployment has at least one query"))
    if errors or deployment is None:
        raise failure(parsed.source, errors)
    content = {n: value for n, value in draft.content.items() if value or n != "alerts"}
    return Declared(deployment, content, tuple(draft.warnings))


def parse_deployment_sql(text: str, where: str, *, micro_batch: bool = False) -> Declared:
    """As ``parse_deployment``, of statements in place of YAML."""
    return declare(parse(text, where), micro_batch=micro_batch)
