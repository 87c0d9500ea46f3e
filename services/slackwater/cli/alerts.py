"""``slackwater alerts``: which alerts stand; ``slackwater notify`` sends them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackwater.cli.common import (
    BootstrapOption,
    DataDirOption,
    KafkaConfigOption,
    PrefixOption,
    data_dir,
    emit,
    find_kafka,
    find_names,
)
from slackwater.model.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from slackwater.notifier.app import AlertReceiver
    from slackwater.runtime.service.settings import Settings


def alerts(
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    bootstrap: BootstrapOption = None,
    prefix: PrefixOption = None,
    kafka_config: KafkaConfigOption = None,
    data_dir_: DataDirOption = None,
) -> None:
    """Show which alerts fire, which are pending, and which ended last.

    Example: slackwater alerts
    """
    from slackwater.notifier.app import STATE_FILE, receiver_states
    from slackwater.runtime.logs.kafka import KafkaTransport
    from slackwater.runtime.security.credentials import Role
    from slackwater.status.alerts import read_alerts

    cluster, _ = find_kafka(bootstrap, kafka_config, data_dir_, Role.CLIENT)
    view = read_alerts(KafkaTransport(cluster, find_names(prefix, bootstrap, data_dir_)))
    receivers = receiver_states(data_dir(data_dir_) / STATE_FILE)
    if is_json:
        emit(json.dumps(view.to_json() | {"receivers": dict(receivers)}, indent=2), is_json=True)
        return
    for line in lines(view.to_json(), receivers):
        emit(line)


def lines(view: Mapping[str, Any], receivers: Mapping[str, Any]) -> Iterator[str]:
    """Yield the report: a line for each alert, and one for each receiver."""
    if not any(view.values()):
        yield "no alert fires, is pending, or has ended"
    for of in view["firing"]:
        state = "tentative" if of["tentative"] else "firing"
        without = f", without {', '.join(of['missing'])}" if of["missing"] else ""
        since = of["window_end"] if of["key"] else of["window_start"]  # of a stream: since when
        yield f"{state:<10} {_name(of)}  since {since}{_values(of['values'])}{without}"
    for of in view["pending"]:
        yield f"{'pending':<10} {_name(of)}  {of['changed_to']}{_values(of['values'])}"
    for of in view["ended"]:
        exact = f", exact{_values(of['exact'])}" if of.get("exact") else ""
        reason = f", {of['reason']}" if "reason" in of else ""
        shown = f"{_values(of['values'])}{exact}{reason}"
        yield f"{of['state']:<10} {_name(of)}  {of['window_end']} to {of['changed_to']}{shown}"
    for name, of in receivers.items():
        error = f", {of['failures']} failures: {of['last_error']}" if of["failures"] else ""
        yield f"{name}: {of['sent']} sent, {of['waiting']} waiting{error}"


def _name(of: Mapping[str, Any]) -> str:
    key = f" {of['key']!r}" if of["key"] else ""
    return f"{of['alert']} of {of['query']}{key}"


def _values(of: Mapping[str, float | None]) -> str:
    return "".join(f" {name} {'null' if v is None else f'{v:g}'}" for name, v in of.items())


def notify(
    bootstrap: BootstrapOption = None,
    prefix: PrefixOption = None,
    kafka_config: KafkaConfigOption = None,
    data_dir_: DataDirOption = None,
) -> None:
    """Send alerts to Alertmanager and to a webhook, at least once, until Ctrl-C.

    The addresses are in SLACKWATER_ALERTMANAGER_URL and SLACKWATER_WEBHOOK_URL, the webhook's token
    in the file that SLACKWATER_WEBHOOK_TOKEN_FILE names. One of the two is required.

    Example: slackwater notify
    """
    from slackwater.notifier.app import STATE_FILE, Notifier
    from slackwater.notifier.main import run_notifier
    from slackwater.runtime.logs.kafka import KafkaTransport
    from slackwater.runtime.security.credentials import Role
    from slackwater.runtime.security.private import make_data_directory
    from slackwater.runtime.service.settings import settings
    from slackwater.status.alerts import alert_topics

    webhook, alertmanager = receivers_of(settings())
    cluster, _ = find_kafka(bootstrap, kafka_config, data_dir_, Role.NOTIFIER)
    transport = KafkaTransport(cluster, find_names(prefix, bootstrap, data_dir_))
    directory: Path = data_dir(data_dir_)
    make_data_directory(directory)
    notifier = Notifier(
        transport,
        partial(alert_topics, cluster, transport.names),
        directory / STATE_FILE,
        webhook=webhook,
        alertmanager=alertmanager,
    )
    run_notifier(notifier, transport, emit)


def receivers_of(of: Settings) -> tuple[AlertReceiver | None, AlertReceiver | None]:
    """Return the webhook and Alertmanager of the settings.

    Raises:
        UsageError: none is set, or one is wrong.
    """
    from slackwater.notifier.app import receiver

    if of.webhook_url is None and of.alertmanager_url is None:
        raise UsageError(
            "there is no receiver: set SLACKWATER_ALERTMANAGER_URL or SLACKWATER_WEBHOOK_URL"
        )
    webhook = alertmanager = None
    if of.webhook_url is not None:
        token = ""
        if of.webhook_token_file is not None:
            try:
                token = of.webhook_token_file.read_text().strip()
            except OSError as error:
                name = of.webhook_token_file
                raise UsageError(f"{name} cannot be read: {error.strerror}") from None
        webhook = receiver("webhook", of.webhook_url.get_secret_value(), token)
    if of.alertmanager_url is not None:
        base = of.alertmanager_url.get_secret_value().rstrip("/")
        alertmanager = receiver("alertmanager", f"{base}/api/v2/alerts")
    return webhook, alertmanager
