"""Runs a text of statements: all of it is checked before the first one has an effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from slackwater.cli.common import emit, warn
from slackwater.cli.query_changes import (
    apply_queries,
    next_window,
    recorded_state,
    request_each,
    wait_ready,
)
from slackwater.cli.statements import shown
from slackwater.cli.statements.outcomes import DONE, Stated, kept, outcomes
from slackwater.cli.statements.output import RowOutput
from slackwater.cli.statements.results import check_select, print_select
from slackwater.cli.statements.running import RunningDeployment, Surroundings
from slackwater.control.control_object import DeleteQuery, Operation, PauseQuery, ResumeQuery
from slackwater.deployment.queries import MARGIN_DEFAULT_US, MARGIN_MICRO_BATCH_US
from slackwater.deployment.shaping import did_you_mean
from slackwater.model.deployment import Deployment
from slackwater.model.errors import EnvironmentProblem
from slackwater.model.names import some_of
from slackwater.runtime.service.clock import SystemClock
from slackwater.sql.declared import content_of
from slackwater.sql.document import Draft, failure
from slackwater.sql.parser import ParsedText, parse
from slackwater.sql.printer import alert_text, query_text, stream_text
from slackwater.sql.statements import (
    ChangeQuery,
    Changing,
    Create,
    Describe,
    DropAlert,
    Explain,
    Select,
    Setting,
    Show,
    ShowCreate,
    Statement,
)
from slackwater.sql.tokens import SqlError

_OPERATIONS: Final[dict[Changing, Callable[[str], Operation]]] = {
    "drop": DeleteQuery,
    "pause": PauseQuery,
    "resume": ResumeQuery,
}
_DONE: Final[dict[Changing, str]] = {
    "drop": "is deleted; its results stay in their topics",
    "pause": "is paused; RESUME QUERY continues it",
    "resume": "is resumed",
}
_EMPTY: Final = Deployment("wall", {}, {})
AT_SITES: Final = (
    "SQL has no words for sites with a Kafka of their own: change the file, and use"
    " `slackwater query apply`; queries that have them"
)


class StatementRunner:
    """Runs texts. ``keeps_streams``: a stream that no query reads yet is kept for later texts."""

    def __init__(
        self,
        where: Surroundings,
        output: RowOutput,
        *,
        waits: bool = False,
        keeps_streams: bool = False,
    ) -> None:
        self._where = where
        self._output = output
        self._waits = waits
        self._keeps_streams = keeps_streams
        self._kept: dict[str, Any] = {}

    def run(self, text: str, name: str) -> None:
        """Run a text; ``name`` is that of its file in messages.

        Raises:
            DeploymentError: the text has errors; nothing of it has been run.
        """
        parsed = parse(text, name)
        if not parsed.all_named:
            raise failure(parsed.source, parsed.errors)
        if not parsed.statements:
            return
        checked = _Checked(self, parsed, self._running(parsed))
        for warning in checked.draft.warnings:
            warn(f"warning: {warning}")
        for act in checked.acts:
            act()

    def names(self) -> tuple[list[str], list[str]]:
        """Return the names of the streams and of the queries that run; none without a record."""
        try:
            found = self._read()
        except EnvironmentProblem:
            return [*self._kept], []
        return [*found.deployment.streams, *self._kept], [*found.deployment.queries]

    def _read(self) -> RunningDeployment:
        recorded = recorded_state(self._where.reach(), "sql")
        return RunningDeployment.of(recorded, self._where.file())

    def _running(self, parsed: ParsedText) -> RunningDeployment | None:
        """Return what runs; None if nothing does, and the text does without."""
        try:
            return self._read()
        except EnvironmentProblem:
            if all(_needs_nothing(each) for each in parsed.statements):
                return None
            raise


def _needs_nothing(statement: Statement) -> bool:
    """Whether a statement has a meaning where no deployment runs."""
    is_stream = isinstance(statement, Create) and statement.section == "streams"
    return is_stream or isinstance(statement, Explain | Setting)


class _Checked:
    """A text whose statements have been checked, each against what those before it leave.

    ``acts`` are to be called in order.
    """

    def __init__(
        self, runner: StatementRunner, parsed: ParsedText, running: RunningDeployment | None
    ) -> None:
        self.acts: list[Callable[[], None]] = []
        self._runner, self._where = runner, runner._where
        self._running = running
        self._current = _EMPTY if running is None else running.deployment
        content = content_of(self._current, self._margin_us)
        if running is not None and not running.applied:
            content |= {"prefix": self._where.names().prefix}
        content["streams"] = {**runner._kept, **content["streams"]}
        self.draft = Draft(parsed.source, content, self._current.streams)
        self._at_sites = [q.name for q in self._current.queries.values() if q.spans_sites]
        self._source = parsed.source
        self._created: list[str] = []
        self._stated: list[Create | DropAlert] = []
        self._is_changed = False
        for each in parsed.statements:
            if not isinstance(each, Create | DropAlert):
                self._apply()
            self._check(each)
        self._apply()
        self._check_unread(parsed)
        errors = [*parsed.errors, *self.draft.errors]
        if errors:
            raise failure(parsed.source, errors)

    @property
    def _margin_us(self) -> int:
        return MARGIN_MICRO_BATCH_US if self._where.micro_batch else MARGIN_DEFAULT_US

    def _error(self, at: int, reason: str) -> None:
        self.draft.errors.append((at, reason))

    def _check(self, statement: Statement) -> None:
        if isinstance(statement, Create | DropAlert | ShowCreate) and self._at_sites:
            self._error(statement.at, f"{AT_SITES}: {some_of(self._at_sites)}")
            return
        match statement:
            case Create():
                self.draft.add(statement)
                self._is_changed = True
                self._stated.append(statement)
                if statement.section == "queries":
                    self._created.append(statement.name)
            case Setting():
                self._setting(statement)
            case ChangeQuery(change, name, at):
                if self._is_there("queries", name, at):
                    self.acts.append(partial(self._change, change, name))
                    if change == "drop":
                        self.draft.drop(name)
            case DropAlert(name, at):
                if self._is_there("alerts", name, at):
                    self.draft.drop_alert(name)
                    self._is_changed = True
                    self._stated.append(statement)
            case Show(section):
                self.acts.append(partial(self._show, section))
            case ShowCreate(section, name, at):
                if self._is_there(section, name, at):
                    content = self.draft.content[section][name]
                    self.acts.append(partial(self._show_create, section, name, content))
            case Describe(name, at):
                section = "streams" if name in self.draft.content["streams"] else "queries"
                if self._is_there(section, name, at, "stream or query"):
                    self.acts.append(partial(self._describe, name))
            case Explain(create):
                self._explain(create)
            case Select():
                self._select(statement)

    def _is_there(self, section: str, name: str, at: int, what: str = "") -> bool:
        there = self.draft.content[section]
        if name in there:
            return True
        what = what or {"streams": "stream", "queries": "query", "alerts": "alert"}[section]
        known = f", only {', '.join(list(there)[:20])}" if there else ""
        self._error(at, f"there is no {what} {name!r}{known}{did_you_mean(name, there)}")
        return False

    def _setting(self, setting: Setting) -> None:
        """A running deployment has its settings; what it has may be set again."""
        if self._running is None:
            self.draft.add(setting)
        elif self.draft.content.get(setting.name, "wall") != setting.content:
            reason = (
                f"{setting.name} of a running deployment stays as it was started:"
                " SET is for `slackwater sql --to-yaml`"
            )
            self._error(setting.at, reason)

    def _apply(self) -> None:
        """Check the statements CREATE that follow each other, which are applied together."""
        if not self._is_changed:
            return
        created, self._created, self._is_changed = self._created, [], False
        statements, self._stated = self._stated, []
        deployment = self.draft.check(micro_batch=self._where.micro_batch)
        if deployment is None:
            return
        stated = [Stated.of(each, deployment, self._current) for each in statements]
        before, self._current = self._current.queries, deployment
        created += [
            name
            for name, query in deployment.queries.items()
            if name in before and before[name].alerts != query.alerts
        ]
        names = [query.name for query in deployment.in_order() if query.name in created]
        self.acts.append(partial(self._create, deployment, names, stated))

    def _check_unread(self, parsed: ParsedText) -> None:
        queries = self.draft.content["queries"].values()
        read = {source for query in queries for source in query.get("from", ())}
        read |= {
            source
            for each in parsed.statements
            if isinstance(each, Explain)
            for source in each.create.content["from"]
        }
        unread = {}
        for each in parsed.statements:
            if not isinstance(each, Create) or each.section != "streams" or each.is_broken:
                continue
            if each.name in read or each.name in self.draft.running:
                continue
            unread[each.name] = each.content
            if not self._runner._keeps_streams:
                reason = f"no query reads stream {each.name}: create one in the same text"
                self._error(each.at, reason)
        if unread:
            self.acts.append(partial(self._keep, unread))

    def _explain(self, create: Create) -> None:
        content = {**self.draft.content, "queries": dict(self.draft.content["queries"])}
        draft = Draft(self._source, content, self.draft.running, spots=dict(self.draft.spots))
        draft.content["queries"].pop(create.name, None)
        draft.spots.pop(("queries", create.name), None)
        draft.add(create)
        deployment = draft.check(micro_batch=self._where.micro_batch)
        self.draft.errors += draft.errors
        self.draft.warnings |= draft.warnings
        if deployment is not None:
            self.acts.append(partial(self._print_explained, create.name, deployment))

    def _select(self, select: Select) -> None:
        if not self._is_there("queries", select.query, select.at):
            return
        if select.query not in self._current.queries:
            return  # its CREATE has an error
        try:
            checked = check_select(select, self._current)
        except SqlError as error:
            self._error(error.at, error.reason)
            return
        names, output = self._current.names, self._runner._output
        self.acts.append(lambda: print_select(checked, self._where.cluster(), names, output))

    # What statements do:

    def _create(self, deployment: Deployment, names: list[str], stated: list[Stated]) -> None:
        output, running, accepted = self._runner._output, self._running, list[str]()
        if names:
            registry = self._where.registry
            find = None if registry is None else lambda: registry(deployment.names)
            with output.reporting():
                accepted = apply_queries(self._where.reach(), deployment, names, "now", find)
                if accepted and self._runner._waits:
                    wait_ready(self._where.cluster(), deployment.names, accepted)
        there = () if running is None else running.deployment.queries
        generations = {} if running is None else {name: running.generation(name) for name in there}
        output.outcomes(outcomes(stated, accepted, deployment, generations))

    def _change(self, change: Changing, name: str) -> None:
        output = self._runner._output
        with output.reporting():
            request_each(self._where.reach(), _OPERATIONS[change], name)
            emit(f"query {name} {_DONE[change]}")
        statement = f"{change.upper()} QUERY"
        there = self._running is not None and name in self._running.deployment.queries
        generation = self._running.generation(name) if self._running is not None and there else 0
        output.outcomes([(statement, name, DONE[change], generation)])

    def _show(self, section: str) -> None:
        running = self._runner._read()
        if section == "queries":
            self._runner._output.rows(shown.QUERIES, shown.query_rows(running))
        elif section == "alerts":
            self._runner._output.rows(shown.ALERTS, shown.alert_rows(running.deployment))
        else:
            self._runner._output.rows(shown.STREAMS, shown.stream_rows(running.deployment))

    def _show_create(self, section: str, name: str, content: Mapping[str, Any]) -> None:
        texts = {"streams": stream_text, "queries": query_text, "alerts": alert_text}
        text = texts[section](name, content)
        self._runner._output.text(text.rstrip())

    def _describe(self, name: str) -> None:
        deployment = self._current
        if name not in deployment.streams and name not in deployment.queries:
            deployment = self._runner._read().deployment
        self._runner._output.rows(shown.DESCRIBED, shown.described(deployment, name))

    def _print_explained(self, name: str, deployment: Deployment) -> None:
        now_us = None if deployment.clock == "data" else SystemClock().now_us()
        start_us = next_window(deployment.queries[name], now_us)
        rows = shown.explained(name, deployment, self._running, start_us)
        self._runner._output.rows(shown.EXPLAINED, rows)

    def _keep(self, streams: Mapping[str, Any]) -> None:
        self._runner._kept |= streams
        with self._runner._output.reporting():
            for name in streams:
                emit(f"stream {name} is kept in this session: it begins with a query that reads it")
        self._runner._output.outcomes(kept(streams))
