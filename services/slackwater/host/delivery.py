"""Builds the session of a delivery, which evaluates a query's alerts, and its committer."""

from __future__ import annotations

from dataclasses import replace

from aiokafka import AIOKafkaProducer

from slackwater.delivery.rules import alert_rules
from slackwater.host.committer import FencedProducers
from slackwater.host.driven import SLOW_HEARTBEAT_PERIOD_US
from slackwater.host.fragment import Fragment
from slackwater.host.known import RegistryView
from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.errors import UsageError
from slackwater.model.names import RESULT_KINDS, DeliveryName, base_of
from slackwater.model.records import RootState
from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc.soutput.config import Commit
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.service.state import read_alert_placement
from slackwater.sessions.delivery import DeliveryConfig, DeliverySession
from slackwater.sessions.effects import CommitRecords


def make(name: str, known: RegistryView, transport: KafkaTransport) -> Fragment:
    """Make the delivery ``name`` (QUERY.alerts) with its placement number; waits for its query.

    Raises:
        UsageError: the query has been deleted, or has and had no alerts.
    """
    of = DeliveryName.parse(name)
    deployment, definition = known.deployment_of(of.query), known.present_query(of.query)
    if definition.state == "deleted":
        raise UsageError(f"query {of.query} has been deleted: there is no delivery {name}")
    names, query = transport.names, base_of(of.query)
    spec = _with_present_rules(definition.spec, deployment)
    if not spec.delivers:
        raise UsageError(f"query {of.query} has no alerts: there is no delivery {name}")
    grid = Grid(definition.w_us, spec.units(definition.w_us))
    config = DeliveryConfig(
        fragment=of.process,
        query=query,
        parts=spec.parts,
        rules=alert_rules(deployment, spec, query),
        later=grid.later,
        names=names,
        placement=known.placement(of.process, lambda: read_alert_placement(transport, query)),
    )
    session = DeliverySession(config)
    own = {names.alerts(query), names.registry}
    own |= {names.results(query, kind) for kind in RESULT_KINDS}
    return Fragment(
        session,
        spec.margin_us // 2,
        frozenset(own),
        heartbeat_period_us=SLOW_HEARTBEAT_PERIOD_US,
        committer=RecordCommitter(transport, config),
    )


def _with_present_rules(registered: QuerySpec, deployment: Deployment) -> QuerySpec:
    """Return a query with the rules of the file: `up` may have been started with other ones."""
    declared = deployment.queries.get(registered.name, registered)
    return replace(registered, alerts=declared.alerts, had_alerts=declared.had_alerts)


class RecordCommitter:
    """Commits the records of a delivery, fenced as those of a root (rule-27)."""

    def __init__(self, transport: KafkaTransport, config: DeliveryConfig) -> None:
        names, query = config.names, config.query
        fence, topics = names.delivery_id(query), (names.alerts(query),)
        self._producers = FencedProducers(transport.cluster, config.fragment, fence, topics)
        self._producer: AIOKafkaProducer | None = None

    async def prepare(self) -> None:
        """Connect the producer of the next ``open``."""
        await self._producers.prepare()

    async def open(self) -> None:
        """Start the committing producer, which fences older ones."""
        self._producer = await self._producers.open()

    async def commit(self, commit: Commit | CommitRecords, emitted_at: int) -> None:
        """Commit one transaction.

        Raises:
            LogError: it was not committed, or its outcome is unknown.
        """
        assert self._producer is not None, "transactions have not been opened"
        assert isinstance(commit, CommitRecords), "a delivery commits records"
        topic, partition = commit.log
        producer = self._producer
        async with self._producers.within_bound("a transaction makes no progress"):
            await producer.begin_transaction()
            for key, value in commit.records:
                await producer.send(topic, value, key=key, partition=partition)
            await producer.flush()
            await producer.commit_transaction()

    async def claim(self, state: RootState) -> None:
        """Refuse: its placement number is in its first transaction."""
        raise AssertionError(f"a delivery has no state record, as {state.fragment}")

    async def close(self) -> None:
        """Close the remaining producers within a time limit; never raises."""
        await self._producers.close()
