"""The shapes of the deployment file, as Pydantic models: fields, their types and defaults.

Constraints between fields, or between streams and queries, are checked in ``streams.py``,
``mqtt.py`` and ``queries.py``, where the line is known. Scalars are given as text, see
``yaml_lines.py``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
)

from slackwater.deployment.bounds import NAME_CHARS_MAX, too_many_fields
from slackwater.deployment.window_size import Weekday, WindowSize, window_size
from slackwater.model.alerts import WINDOWS_MAX, Tentative
from slackwater.model.deployment import (
    Clock,
    Fold,
    KeyFrom,
    TimeFrom,
    TimeUnit,
    TopicFormat,
)
from slackwater.model.durations import parse_duration_us
from slackwater.model.limits import KEY_CHARS_MAX
from slackwater.model.mqtt import IN_FLIGHT_DEFAULT, SESSION_DEFAULT_US, MqttFormat, MqttVersion
from slackwater.model.names import why_no_prefix
from slackwater.primitives.aggregates import AGGREGATES, PARAMETERISED
from slackwater.primitives.expression_text import KEY

AUTO: Final = "auto"
MQTT_FILTERS_MAX: Final = 200
"""Maximum number of topic filters of a stream."""
MEANINGS_MAX: Final = 100
"""Maximum number of texts that a stream declares as missing, or as values."""
SKIP_LINES_MAX: Final = 1_000
"""Maximum number of lines before the header of a CSV file."""
PROXIES_MAX: Final = 64
"""Maximum number of proxies of a stream."""
PARTS_MAX: Final = 8
"""Maximum number of columns, fields or levels that are joined to a key or a time."""
JOIN_CHARS_MAX: Final = 16
ALERTS_MAX: Final = 1_000
"""Maximum number of alerts of a file."""
_FIELD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def _duration(text: Any) -> int:
    if not isinstance(text, str):
        raise ValueError("must be a duration, like 500ms")
    return parse_duration_us(text)


def _positive(us: int) -> int:
    if us <= 0:
        raise ValueError("must be longer than 0")
    return us


def _every(text: Any) -> Any:
    return text if text == AUTO else _positive(_duration(text))


def _true_or_false(text: Any) -> bool:
    if text not in ("true", "false"):
        raise ValueError("must be true or false")
    return bool(text == "true")


def _field_map(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    if not all(isinstance(item, str) for item in value):
        raise ValueError("must be a list of columns or a mapping of names to columns")
    doubles = sorted(item for item, times in Counter(value).items() if times > 1)
    if doubles:
        raise ValueError(f"{', '.join(doubles)} is listed twice")
    return {item: item for item in value}


def _short(name: str) -> str:
    if len(name) > NAME_CHARS_MAX:
        raise ValueError(f"has {len(name)} characters, at most {NAME_CHARS_MAX}")
    return name


def _several(parts: Any) -> Any:
    if not isinstance(parts, list):
        raise ValueError("must be a list, [a, b]")
    if not 2 <= len(parts) <= PARTS_MAX:
        raise ValueError(f"has {len(parts)} parts: from 2 to {PARTS_MAX} are joined")
    doubles = sorted(str(part) for part, times in Counter(map(str, parts)).items() if times > 1)
    if doubles:
        raise ValueError(f"{', '.join(doubles)} is listed twice")
    return parts


def _join(text: str) -> str:
    if len(text) > JOIN_CHARS_MAX:
        raise ValueError(f"has {len(text)} characters, at most {JOIN_CHARS_MAX}")
    return text


def _key_value(value: str) -> str:
    value = value.strip()  # as keys of readings
    if not value:
        raise ValueError("is blank: a key has characters")
    if len(value) > KEY_CHARS_MAX:
        raise ValueError(f"has {len(value)} characters, a key has at most {KEY_CHARS_MAX}")
    return value


_Fields = TypeVar("_Fields", bound=dict[str, str])


def _few_fields(fields: _Fields) -> _Fields:
    if (reason := too_many_fields(len(fields))) is not None:
        raise ValueError(reason)
    return fields


def _field_name(name: str) -> str:
    if not _FIELD.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a valid name of a field: use letters, digits and _, not beginning "
            "with a digit; rename a column with a mapping, name: column"
        )
    if name == KEY:
        raise ValueError("a field cannot be called key: this is the name of the key in expressions")
    return _short(name)


def _registry(value: Any) -> Any:
    return {"url": value} if isinstance(value, str) else value


def _prefix(text: Any) -> Any:
    reason = why_no_prefix(text) if isinstance(text, str) else "must be text, as in plant-7."
    if reason is not None:
        raise ValueError(reason)
    return text


def _aggregate(text: Any) -> Any:
    if isinstance(text, str) and text in AGGREGATES:
        return (text,)
    if isinstance(text, Mapping) and len(text) == 1:
        ((name, parameter),) = text.items()
        if name in PARAMETERISED:
            return PARAMETERISED[name].names(parameter)
    with_parameter = (each.written for each in PARAMETERISED.values())
    *others, last = [*map(repr, AGGREGATES), *with_parameter]
    shown = "null" if text is None else repr(text)
    raise ValueError(f"must be {', '.join(others)} or {last}, not {shown}")


Prefix = Annotated[str, BeforeValidator(_prefix)]
Aggregate = Annotated[tuple[str, ...], BeforeValidator(_aggregate)]
CHILDREN_MAX: Final = 1_024
OF_ALL, OF_FIELDS = "[all]", "[fields]"
"""Tags of the two forms of ``aggregate``, which Pydantic puts into the places of errors."""
Aggregated = Annotated[
    Annotated[tuple[Aggregate, ...], Tag(OF_ALL)]
    | Annotated[dict[str, tuple[Aggregate, ...]], Tag(OF_FIELDS)],
    Discriminator(lambda value: OF_FIELDS if isinstance(value, Mapping) else OF_ALL),
]
"""The aggregates of all fields, or those of each field."""
COUNTED, NAMED, BY_SITE = "[count]", "[named]", "[sites]"
"""Tags of the forms of ``children``."""
SITES: Final = "sites"
SITES_MAX: Final = 1_000


def _form_of_children(value: Any) -> str:
    if isinstance(value, Mapping):
        return NAMED
    return BY_SITE if value == SITES else COUNTED


Children = Annotated[
    Annotated[int, Field(ge=1, le=CHILDREN_MAX), Tag(COUNTED)]
    | Annotated[
        dict[str, tuple[str, ...]], Field(min_length=1, max_length=CHILDREN_MAX), Tag(NAMED)
    ]
    | Annotated[Literal["sites"], Tag(BY_SITE)],
    Discriminator(_form_of_children),
]
"""A number of children, the logs of each, or one for each site of the streams."""
Duration = Annotated[int, BeforeValidator(_duration)]
PositiveDuration = Annotated[int, BeforeValidator(lambda text: _positive(_duration(text)))]
Every = Annotated[int | Literal["auto"], BeforeValidator(_every)]
Flag = Annotated[bool, BeforeValidator(_true_or_false)]
Text = Annotated[str, Field(min_length=1)]
Column = Annotated[Text, AfterValidator(_short)]
Level = Annotated[int, Field(ge=1, le=32_768)]
Columns = Annotated[tuple[Column, ...], BeforeValidator(_several)]
Levels = Annotated[tuple[Level, ...], BeforeValidator(_several)]
FieldName = Annotated[str, BeforeValidator(_field_name)]
FieldMap = Annotated[
    dict[FieldName, Column],
    BeforeValidator(_field_map),
    AfterValidator(_few_fields),
    Field(min_length=1),
]
Selected = Annotated[dict[FieldName, Text], AfterValidator(_few_fields), Field(min_length=1)]


class Shape(BaseModel):
    """A mapping of the file: an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class KeyShape(Shape):
    """The source of a stream's key: columns, fields, levels of a topic, a record, a constant."""

    column: Column | None = None
    field: Column | None = None
    value: Annotated[Text, AfterValidator(_key_value)] | None = None
    level: Level | None = None
    columns: Columns | None = None
    fields_: Annotated[Columns | None, Field(alias="fields")] = None
    levels: Levels | None = None
    join: Annotated[Text, AfterValidator(_join)] | None = None
    from_: Annotated[KeyFrom | None, Field(alias="from")] = None


class TimeShape(Shape):
    """The source and the format of a reading's event time."""

    column: Column | None = None
    columns: Annotated[tuple[Column, ...], Field(min_length=1, max_length=PARTS_MAX)] | None = None
    field: Column | None = None
    fields_: Annotated[Columns | None, Field(alias="fields")] = None
    join: Annotated[str, AfterValidator(_join)] | None = None
    unit: TimeUnit | None = None
    format: Text | None = None
    zone: Text | None = None
    fold: Fold | None = None
    from_: Annotated[TimeFrom | None, Field(alias="from")] = None


class CsvShape(Shape):
    """The format of a stream's files."""

    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    decimal: Literal[".", ","] = "."
    skip_lines: Annotated[int, Field(ge=0, le=SKIP_LINES_MAX)] = 0


class RegistryShape(Shape):
    """A schema registry; may be given as its URL alone if it needs no credentials."""

    url: Text
    credentials: Text | None = None


class SequenceShape(Shape):
    """The counter in a device's messages."""

    field_: Annotated[Column, Field(alias="field")]


class TopicShape(Shape):
    """The existing topic that a stream is read from."""

    name: Text
    format: TopicFormat
    registry: Annotated[RegistryShape | None, BeforeValidator(_registry)] = None
    schemas: Text | None = None
    from_: Annotated[Literal["beginning", "end"], Field(alias="from")] = "beginning"
    proxies: Annotated[int, Field(ge=1, le=PROXIES_MAX)] = 1
    partitions: Literal["watched", "fixed"] = "watched"
    sequence: SequenceShape | None = None


class MqttTlsShape(Shape):
    """PEM files of a TLS connection to an MQTT broker."""

    ca_file: Text | None = None
    cert_file: Text | None = None
    key_file: Text | None = None


class MqttShape(Shape):
    """The MQTT broker that a stream is read from."""

    broker: Text
    topics: Annotated[tuple[Text, ...], Field(min_length=1, max_length=MQTT_FILTERS_MAX)]
    version: MqttVersion = "5"
    format: MqttFormat = "json"
    client_id: Text | None = None
    qos: Annotated[int, Field(ge=0, le=2)] = 1
    in_flight: Annotated[int, Field(ge=1, le=65_535)] = IN_FLIGHT_DEFAULT
    session: PositiveDuration = SESSION_DEFAULT_US
    tls: MqttTlsShape | None = None
    username: Text | None = None
    password_file: Text | None = None
    sequence: SequenceShape | None = None


class HttpInputShape(Shape):
    """A stream whose readings are posted to the proxy."""

    token_file: Text | None = None
    sequence: SequenceShape | None = None


class TlsShape(Shape):
    """The certificate of the HTTP listener, with its chain, and the private key; PEM files."""

    certificate: Text
    key: Text


class HttpListenShape(Shape):
    """The address at which the proxy accepts HTTP requests."""

    listen: Text = "127.0.0.1:8088"
    tls: TlsShape | None = None


class StreamShape(Shape):
    """One entry of ``streams``."""

    key: KeyShape
    time: TimeShape
    fields_: Annotated[FieldMap, Field(alias="fields")]
    texts: Annotated[FieldMap, Field(default_factory=dict)]
    csv: CsvShape | None = None
    topic: TopicShape | None = None
    mqtt: MqttShape | None = None
    http: HttpInputShape | None = None
    disorder: Duration = 0
    ahead: Duration | None = None
    expect_every: Every | None = None
    sporadic: Flag = False
    site: Text | None = None
    missing: Annotated[tuple[Column, ...], Field(min_length=1, max_length=MEANINGS_MAX)] = ()
    values: Annotated[dict[Column, Text], Field(min_length=1, max_length=MEANINGS_MAX)] = {}

    @property
    def is_json_file(self) -> bool:
        """Whether its readings are in files of JSON: its time is a field, and not a column."""
        is_file = self.topic is None and self.mqtt is None and self.http is None
        return is_file and (self.time.field is not None or self.time.fields_ is not None)


class WindowShape(Shape):
    """The windows of a query; tumbling without ``slide``."""

    size: Annotated[WindowSize, BeforeValidator(window_size)]
    slide: PositiveDuration | None = None
    offset: Duration | None = None
    starts: Weekday | None = None
    zone: Text | None = None


class PolicyShape(Shape):
    """A query's policies during a failure and during stabilization (DPC, section 6.1)."""

    failure: Literal["delay", "process"] = "process"
    stabilization: Literal["suspend", "delay", "process"] = "process"


class ResultsShape(Shape):
    """The format of results."""

    format: Literal["json", "avro", "avro-registry", "columns"] = "json"


class JoinShape(Shape):
    """A join of two streams by key and time."""

    left: Text
    right: Text
    within: Duration


class QueryShape(Shape):
    """One entry of ``queries``."""

    from_: Annotated[tuple[Text, ...], Field(alias="from", min_length=1)]
    join: JoinShape | None = None
    where: Text | None = None
    select: Selected | None = None
    window: WindowShape | None = None
    aggregate: Aggregated | None = None
    having: Text | None = None
    bound: PositiveDuration
    margin: PositiveDuration | None = None
    policy: PolicyShape = PolicyShape()
    replicas: Annotated[int, Field(ge=1, le=26)] = 2
    children: Children = 1
    parts: Annotated[int, Field(ge=1, le=1024)] = 1
    copies: Annotated[int, Field(ge=1, le=2)] | None = None
    mergers: Annotated[int, Field(ge=0, le=26)] = 0
    at: Text | None = None
    results: ResultsShape = ResultsShape()

    @property
    def aggregates(self) -> tuple[str, ...]:
        """The names of all aggregates, each once in a mapping, in order."""
        if isinstance(self.aggregate, Mapping):
            return tuple(dict.fromkeys(name for _, names in self.of_fields for name in names))
        return tuple(name for names in self.aggregate or () for name in names)

    @property
    def of_fields(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The names of the aggregates by field; empty: each field has all of them."""
        if not isinstance(self.aggregate, Mapping):
            return ()
        return tuple(
            (field, tuple(name for names in given for name in names))
            for field, given in self.aggregate.items()
        )


class AlertShape(Shape):
    """One entry of ``alerts``: a condition on the rows of a query, or a stream that is missing."""

    query: Text | None = None
    when: Text | None = None
    for_: Annotated[int | None, Field(alias="for", ge=1, le=WINDOWS_MAX)] = None
    tentative: Tentative | None = None
    stream: Text | None = None
    missing: PositiveDuration | None = None


class SiteShape(Shape):
    """One entry of ``sites``: a site with a Kafka of its own, and how it reaches the centre's."""

    centre: Text | None = None
    bootstrap: Text | None = None
    kafka_config: Text | None = None


class FileShape(Shape):
    """The complete file; streams, queries and alerts are validated one by one."""

    apiVersion: Literal["slackwater/v1"]  # noqa: N815 - the file's spelling
    clock: Clock = "wall"
    prefix: Prefix = ""
    http: HttpListenShape | None = None
    streams: Annotated[dict[str, Any], Field(min_length=1)]
    queries: Annotated[dict[str, Any], Field(min_length=1)]
    alerts: Annotated[dict[str, Any], Field(max_length=ALERTS_MAX)] = {}
    sites: Annotated[dict[str, Any], Field(max_length=SITES_MAX)] = {}
