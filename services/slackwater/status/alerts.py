"""Which alerts stand, as the alert topics of a deployment tell (``delivery.view``)."""

from __future__ import annotations

from slackwater.delivery.records import AlertRecord, decode_delivery
from slackwater.delivery.view import AlertView
from slackwater.model.errors import EnvironmentProblem, MalformedRecordError
from slackwater.model.names import Names
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.skipped import SKIPPED
from slackwater.runtime.logs.topics import own_topics
from slackwater.runtime.logs.transport import LogError, read_to_end


def alert_topics(cluster: Cluster | str, names: Names) -> list[str]:
    """Return the alert topics of a deployment.

    Raises:
        EnvironmentProblem: Kafka does not answer.
    """
    begin = names.alerts("")
    return [topic for topic in own_topics(cluster, names) if topic.startswith(begin)]


def read_alerts(transport: KafkaTransport) -> AlertView:
    """Read all alert topics of a deployment.

    Raises:
        EnvironmentProblem: Kafka does not answer.
    """
    view = AlertView()
    try:
        for topic in alert_topics(transport.cluster, transport.names):
            for raw in read_to_end(transport, (topic, 0), isolation="read_committed"):
                try:
                    record = decode_delivery(raw.value, topic)
                except MalformedRecordError as error:
                    SKIPPED.note(*raw.log, raw.offset, "not a record of alerts", error.reason)
                    continue
                if isinstance(record, AlertRecord):
                    view.take(record)
    except LogError as error:
        raise EnvironmentProblem(f"the alerts cannot be read: {error}") from None
    return view
