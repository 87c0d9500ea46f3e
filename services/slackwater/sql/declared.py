"""The mapping of a deployment file from a deployment: what a file would declare.

``check_content`` of the result gives an equal deployment. A default is left out, and so is what
follows from other fields. Names of files that the deployment has made relative to its file, such as
those of schemas, are returned as it has them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from slackwater.deployment.queries import MARGIN_DEFAULT_US
from slackwater.model.alerts import AlertSpec
from slackwater.model.deployment import (
    AHEAD_DEFAULT_US,
    KEY_JOIN,
    TIME_JOIN,
    CsvSpec,
    Deployment,
    HttpListenSpec,
    KeySpec,
    QuerySpec,
    StreamSpec,
    TimeSpec,
    TopicSpec,
    WindowSpec,
)
from slackwater.model.durations import format_duration_us
from slackwater.model.mqtt import (
    IN_FLIGHT_DEFAULT,
    PORT_PLAIN,
    PORT_TLS,
    SESSION_DEFAULT_US,
    MqttSpec,
)
from slackwater.primitives.aggregates import QUANTILES_MAX

_QUANTILE: Final = re.compile(r"p([0-9]{2,6})")
_TOP: Final = re.compile(r"top([0-9]+)")


def content_of(deployment: Deployment, margin_us: int = MARGIN_DEFAULT_US) -> dict[str, Any]:
    """Return what the file of a deployment declares; ``margin_us`` is the default of margins."""
    content: dict[str, Any] = {"apiVersion": "slackwater/v1"}
    if deployment.clock != "wall":
        content["clock"] = deployment.clock
    if deployment.names.prefix:
        content["prefix"] = deployment.names.prefix
    if deployment.http != HttpListenSpec():
        content["http"] = _listener(deployment.http)
    prefix = deployment.names.prefix
    content["streams"] = {n: stream_content(s, prefix) for n, s in deployment.streams.items()}
    content["queries"] = {n: query_content(q, margin_us) for n, q in deployment.queries.items()}
    alerts = {
        a.name: alert_content(q.name, a) for q in deployment.queries.values() for a in q.alerts
    }
    return {**content, "alerts": alerts} if alerts else content


def alert_content(query: str, spec: AlertSpec) -> dict[str, Any]:
    """Return what the file declares of an alert of this query."""
    if spec.when is None:
        return {"stream": spec.stream, "missing": format_duration_us(spec.missing_us or 0)}
    content: dict[str, Any] = {"query": query, "when": spec.when}
    if spec.windows > 1:
        content["for"] = str(spec.windows)
    return content if spec.tentative == "wait" else {**content, "tentative": spec.tentative}


def stream_content(spec: StreamSpec, prefix: str = "") -> dict[str, Any]:
    """Return what the file declares of a stream; ``prefix``: of the deployment."""
    fields = {each.name: each.source for each in spec.fields if not each.is_text}
    texts = {each.name: each.source for each in spec.fields if each.is_text}
    content: dict[str, Any] = {"key": _key(spec.key), "time": _time(spec.time)}
    content["fields"] = _field_map(fields)
    if texts:
        content["texts"] = _field_map(texts)
    if spec.csv != CsvSpec():
        content["csv"] = _without(
            {
                "delimiter": (spec.csv.delimiter, ","),
                "decimal": (spec.csv.decimal, "."),
                "skip_lines": (spec.csv.skip_lines, 0),
            }
        )
    if spec.topic is not None:
        content["topic"] = _topic(spec.topic)
    if spec.mqtt is not None:
        content["mqtt"] = _mqtt(spec.mqtt, f"slackwater-{prefix}{spec.name}")
    if spec.http is not None:
        content["http"] = _without({"token_file": (spec.http.token_file, None)})
        content["http"] |= _sequence(spec.http.sequence)
    if spec.disorder_us:
        content["disorder"] = format_duration_us(spec.disorder_us)
    if spec.ahead_us != max(AHEAD_DEFAULT_US, spec.disorder_us):
        content["ahead"] = format_duration_us(spec.ahead_us)
    if spec.learns_gaps:
        content["expect_every"] = "auto"
    elif spec.expect_every_us is not None:
        content["expect_every"] = format_duration_us(spec.expect_every_us)
    elif (spec.topic, spec.mqtt, spec.http) != (None, None, None):
        content["sporadic"] = "true"
    if spec.site:
        content["site"] = spec.site
    if spec.missing:
        content["missing"] = list(spec.missing)
    if spec.values:
        content["values"] = {text: _number(value) for text, value in spec.values}
    return content


def query_content(spec: QuerySpec, margin_us: int = MARGIN_DEFAULT_US) -> dict[str, Any]:
    """Return what the file declares of a query, without the children that it shares."""
    content: dict[str, Any] = {"from": list(spec.sources)}
    if spec.join is not None:
        within = format_duration_us(spec.join.within_us)
        content["join"] = {"left": spec.join.left, "right": spec.join.right, "within": within}
    if spec.where is not None:
        content["where"] = spec.where
    if spec.select is not None:
        content["select"] = dict(spec.select)
    if spec.window is not None:
        content["window"] = _window(spec.window)
        content["aggregate"] = (
            {field: _aggregates(names) for field, names in spec.of_fields}
            if spec.of_fields
            else _aggregates(spec.aggregate)
        )
    if spec.having is not None:
        content["having"] = spec.having
    content["bound"] = format_duration_us(spec.bound_us)
    if spec.margin_us != margin_us:
        content["margin"] = format_duration_us(spec.margin_us)
    policy = _without(
        {
            "failure": (spec.failure_policy, "process"),
            "stabilization": (spec.stabilization_policy, "process"),
        }
    )
    if policy:
        content["policy"] = policy
    if spec.child_groups:
        content["children"] = {name: list(logs) for name, logs in spec.child_groups}
    return content | _without(
        {
            "replicas": (spec.replicas, 2),
            "children": (1 if spec.child_groups else spec.children, 1),
            "parts": (spec.parts, 1),
            "copies": (spec.copies, 2),
            "mergers": (spec.mergers, 0),
        }
    )


def _without(values: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    """Return the values that differ from their defaults, as texts."""
    return {name: str(value) for name, (value, default) in values.items() if value != default}


def _field_map(fields: Mapping[str, str]) -> Any:
    plain = all(name == source for name, source in fields.items())
    return list(fields) if plain else dict(fields)


def _key(spec: KeySpec) -> dict[str, Any]:
    content: dict[str, Any] = {
        "column": spec.column,
        "field": spec.field,
        "value": spec.value,
        "level": None if spec.level is None else str(spec.level),
        "columns": list(spec.columns),
        "fields": list(spec.fields),
        "levels": [str(level) for level in spec.levels],
        "from": spec.from_,
    }
    given = {name: value for name, value in content.items() if value}
    if spec.join != KEY_JOIN:
        given["join"] = spec.join
    return given


def _time(spec: TimeSpec) -> dict[str, Any]:
    content: dict[str, Any] = {
        "column": spec.columns[0] if len(spec.columns) == 1 else None,
        "columns": list(spec.columns) if len(spec.columns) > 1 else None,
        "field": spec.field,
        "fields": list(spec.fields),
        "unit": spec.unit,
        "format": spec.format,
        "zone": spec.zone,
        "fold": spec.fold if spec.fold != "refuse" else None,
        "from": spec.from_,
    }
    given = {name: value for name, value in content.items() if value}
    if spec.join != TIME_JOIN:
        given["join"] = spec.join
    return given


def _topic(spec: TopicSpec) -> dict[str, Any]:
    content: dict[str, Any] = {"name": spec.name, "format": spec.format}
    if spec.registry is not None:
        content["registry"] = {"url": spec.registry.url}
        if spec.registry.credentials is not None:
            content["registry"]["credentials"] = spec.registry.credentials
    return (
        content
        | _without(
            {
                "schemas": (spec.schemas, None),
                "from": (spec.from_, "beginning"),
                "proxies": (spec.proxies, 1),
                "partitions": (spec.partitions, "watched"),
            }
        )
        | _sequence(spec.sequence)
    )


def _sequence(path: str | None) -> dict[str, Any]:
    return {} if path is None else {"sequence": {"field": path}}


def _mqtt(spec: MqttSpec, client_id: str) -> dict[str, Any]:
    port = PORT_PLAIN if spec.tls is None else PORT_TLS
    host = f"[{spec.host}]" if ":" in spec.host else spec.host
    content: dict[str, Any] = {
        "broker": host if spec.port == port else f"{host}:{spec.port}",
        "topics": list(spec.topics),
    }
    content |= _without(
        {
            "version": (spec.version, "5"),
            "format": (spec.format, "json"),
            "client_id": (spec.client_id, client_id),
            "qos": (spec.qos, 1),
            "in_flight": (spec.in_flight, IN_FLIGHT_DEFAULT),
        }
    )
    if spec.session_us != SESSION_DEFAULT_US:
        content["session"] = format_duration_us(spec.session_us)
    if spec.tls is not None:
        files = ("ca_file", "cert_file", "key_file")
        content["tls"] = _without({name: (getattr(spec.tls, name), None) for name in files})
    content |= _without(
        {"username": (spec.username, None), "password_file": (spec.password_file, None)}
    )
    return content | _sequence(spec.sequence)


def _listener(spec: HttpListenSpec) -> dict[str, Any]:
    host = f"[{spec.host}]" if ":" in spec.host else spec.host
    content: dict[str, Any] = {"listen": f"{host}:{spec.port}"}
    if spec.certificate_file is not None:
        content["tls"] = {"certificate": spec.certificate_file, "key": spec.key_file}
    return content


def _window(spec: WindowSpec) -> dict[str, Any]:
    months = f"{spec.months}mo"
    content = {"size": months if spec.months else format_duration_us(spec.size_us)}
    if spec.slide_us != spec.size_us:
        content["slide"] = format_duration_us(spec.slide_us)
    if spec.offset_us:
        content["offset"] = format_duration_us(spec.offset_us)
    if spec.zone:
        content["zone"] = spec.zone
    return content


def _aggregates(names: tuple[str, ...]) -> list[Any]:
    """Return the aggregates as the file has them: those with a parameter are one entry."""
    found: list[Any] = []
    for name in names:
        before = found[-1] if found and isinstance(found[-1], dict) else {}
        if (quantile := _QUANTILE.fullmatch(name)) is not None:
            several = before.get("quantiles")
            text = f"0.{quantile[1].rstrip('0')}"
            if several is not None and len(several) < QUANTILES_MAX:
                several.append(text)
            else:
                found.append({"quantiles": [text]})
        elif (top := _TOP.fullmatch(name)) is not None:
            if "top" in before and top[1] != "1":
                before["top"] = top[1]
            else:
                found.append({"top": top[1]})
        else:
            found.append(name)
    return found


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
