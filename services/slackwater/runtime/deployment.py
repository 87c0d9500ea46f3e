"""Reads and checks the deployment file.

A wrong file costs most when it half works: a misspelt field that is ignored, a bound that no stage
can keep. So whatever is not understood is an error, what this version does not do yet is refused,
and each message names file, line and field. All errors are found in one go: each stream and each
query is checked by itself, and what depends on others is checked for those that are sound.

Pydantic checks shapes; what lies between fields is checked here, where the line is known.
"""

from __future__ import annotations

import codecs
import difflib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from slackwater.model.deployment import (
    KEY_CHARS_MAX,
    Clock,
    CsvSpec,
    Deployment,
    FieldSpec,
    JoinSpec,
    KeySpec,
    QuerySpec,
    StreamSpec,
    TimeSpec,
    TopicSpec,
    WindowSpec,
    bucket_of_windows_us,
    joined_fields,
)
from slackwater.model.durations import format_duration_us, parse_duration_us
from slackwater.model.errors import DeploymentError
from slackwater.model.names import OURS, UNPREFIXED, Names, why_no_prefix
from slackwater.primitives.expression_text import KEY, ExpressionError
from slackwater.primitives.expressions import compile_predicate, compile_projection
from slackwater.primitives.lateness import LEARNING
from slackwater.primitives.windows import Grid
from slackwater.runtime.deployment_bounds import (
    CHAIN_QUERIES_MAX,
    EMPTY,
    ERRORS_SHOWN_MAX,
    NAME_CHARS_MAX,
    empty_fields,
    shortened,
    too_many_fields,
    too_many_records,
    too_many_windows,
)
from slackwater.runtime.yaml_lines import Document, read_document
from slackwater.runtime.yaml_lines import Path as Place

file_bytes_max: Final = 4 * 1024 * 1024
disorder_advised_us: Final = 100_000
orderer_records_per_s_max: Final = 2_000
join_within_us_max: Final = 86_400_000_000
"""An orderer holds what it may still join, and reads it again at every start."""
join_within_advised_us: Final = 60_000_000
margin_default_us: Final = 50_000
margin_micro_batch_us: Final = 150_000

AUTO: Final = "auto"
SILENCE_UNDECLARED: Final = (
    "a topic does not tell a producer that has nothing to send from one that is cut off. "
    "Add one line to this stream: `expect_every: auto` (after a longer silence than its readings "
    "ever make it is missing, and answers are tentative until it is back), `expect_every: 5s` (the "
    "same after a silence that you know), or `sporadic: true` (no readings means that there are "
    "none: what comes later than its disorder goes to quarantine)"
)

_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,62}", re.ASCII)
_FIELD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


@dataclass(frozen=True, slots=True)
class CheckedDeployment:
    """A sound deployment, and what its owner should think about."""

    deployment: Deployment
    warnings: tuple[str, ...]


def load_deployment(path: Path | str, *, micro_batch: bool = False) -> Deployment:
    """The deployment in the file; ``DeploymentError`` lists everything that is wrong with it."""
    return check_deployment(path, micro_batch=micro_batch).deployment


def check_deployment(path: Path | str, *, micro_batch: bool = False) -> CheckedDeployment:
    """As ``load_deployment``, with the warnings. ``micro_batch``: how aggregators will run."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            raw = file.read(file_bytes_max + 1)
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise DeploymentError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        utf16 = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        found = "is UTF-16: save it as UTF-8" if utf16 else "is not UTF-8 text"
        raise DeploymentError(f"{path}:{line}: {found}") from error
    if len(raw) > file_bytes_max:
        raise DeploymentError(f"{path}: is larger than {file_bytes_max} bytes")
    return parse_deployment(text, str(path), micro_batch=micro_batch)


def parse_deployment(text: str, where: str, *, micro_batch: bool = False) -> CheckedDeployment:
    """The same for a text; ``where`` is the file's name in messages."""
    document = read_document(text)
    findings = _Findings(document, where)
    for problem in document.problems:
        findings.at_line(problem.line, problem.reason)
    if document.content is None:
        if not document.problems:
            findings.error((), "is empty")
        raise findings.failure()
    deployment = _Checker(document.content, findings, micro_batch).deployment()
    if deployment is None:
        raise findings.failure()
    return CheckedDeployment(deployment, findings.warnings())


class _Findings:
    """Errors and warnings, each with its place; told in the order of the file."""

    def __init__(self, document: Document, where: str) -> None:
        self._document = document
        self._where = where
        self._errors: list[tuple[int, str]] = []
        self._warnings: list[tuple[int, str]] = []

    def at_line(self, line: int, reason: str) -> None:
        self._errors.append((line, f"{self._where}:{line}: {reason}"))

    def error(self, place: Place, reason: str) -> None:
        self._errors.append(self._told(place, reason))

    def warn(self, place: Place, reason: str) -> None:
        self._warnings.append(self._told(place, reason))

    def any(self) -> bool:
        return bool(self._errors)

    def warnings(self) -> tuple[str, ...]:
        return tuple(text for _, text in sorted(self._warnings))

    def failure(self) -> DeploymentError:
        assert self._errors, "nothing is wrong"
        found = list(dict.fromkeys(text for _, text in sorted(self._errors)))
        shown = [shortened(text) for text in found[:ERRORS_SHOWN_MAX]]
        if len(found) > len(shown):
            shown.append(f"{self._where}: {len(found) - len(shown)} more mistakes")
        return DeploymentError("\n".join(shown))

    def _told(self, place: Place, reason: str) -> tuple[int, str]:
        line = self._document.line(place)
        field = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in place).lstrip(".")
        return line, f"{self._where}:{line}: {field + ': ' if field else ''}{reason}"


# The shapes. Scalars come as text, see yaml_lines.


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
        raise ValueError(f"{', '.join(doubles)} is here twice")
    return {item: item for item in value}


def _short(name: str) -> str:
    if len(name) > NAME_CHARS_MAX:
        raise ValueError(f"has {len(name)} characters, at most {NAME_CHARS_MAX}")
    return name


def _key_value(value: str) -> str:
    if len(value) > KEY_CHARS_MAX:
        raise ValueError(f"has {len(value)} characters, a key at most {KEY_CHARS_MAX}")
    return value


_Fields = TypeVar("_Fields", bound=dict[str, str])


def _few_fields(fields: _Fields) -> _Fields:
    if (reason := too_many_fields(len(fields))) is not None:
        raise ValueError(reason)
    return fields


def _field_name(name: str) -> str:
    if not _FIELD.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot be the name of a field: it takes letters, digits and _ and begins "
            "with no digit; give it one with a mapping, name: column"
        )
    if name == KEY:
        raise ValueError("a field cannot be called key: expressions know the key by this name")
    return _short(name)


def _prefix(text: Any) -> Any:
    reason = why_no_prefix(text) if isinstance(text, str) else "must be text, as in plant-7."
    if reason is not None:
        raise ValueError(reason)
    return text


Prefix = Annotated[str, BeforeValidator(_prefix)]
Aggregate = Literal["count", "sum", "avg", "min", "max", "range", "var", "stddev"]
Duration = Annotated[int, BeforeValidator(_duration)]
PositiveDuration = Annotated[int, BeforeValidator(lambda text: _positive(_duration(text)))]
Every = Annotated[int | Literal["auto"], BeforeValidator(_every)]
Flag = Annotated[bool, BeforeValidator(_true_or_false)]
Text = Annotated[str, Field(min_length=1)]
Column = Annotated[Text, AfterValidator(_short)]
FieldName = Annotated[str, BeforeValidator(_field_name)]
FieldMap = Annotated[
    dict[FieldName, Column],
    BeforeValidator(_field_map),
    AfterValidator(_few_fields),
    Field(min_length=1),
]
Selected = Annotated[dict[FieldName, Text], AfterValidator(_few_fields), Field(min_length=1)]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Key(_Shape):
    column: Column | None = None
    field: Column | None = None
    value: Annotated[Text, AfterValidator(_key_value)] | None = None


class _Time(_Shape):
    column: Column | None = None
    columns: Annotated[tuple[Column, ...], Field(min_length=1)] | None = None
    field: Column | None = None
    unit: Literal["s", "ms", "us", "iso"] | None = None
    format: Text | None = None


class _Csv(_Shape):
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    decimal: Literal[".", ","] = "."


class _Topic(_Shape):
    name: Text
    format: Literal["json", "avro"]
    from_: Annotated[Literal["beginning", "end"], Field(alias="from")] = "beginning"


class _Stream(_Shape):
    key: _Key
    time: _Time
    fields_: Annotated[FieldMap, Field(alias="fields")]
    csv: _Csv | None = None
    topic: _Topic | None = None
    disorder: Duration = 0
    expect_every: Every | None = None
    sporadic: Flag = False


class _Window(_Shape):
    size: PositiveDuration
    slide: PositiveDuration | None = None


class _Policy(_Shape):
    failure: Literal["delay", "process"] = "process"
    stabilization: Literal["suspend", "delay", "process"] = "process"


class _Results(_Shape):
    format: Literal["json", "avro", "avro-registry", "columns"] = "json"


class _Join(_Shape):
    left: Text
    right: Text
    within: Duration


class _Query(_Shape):
    from_: Annotated[tuple[Text, ...], Field(alias="from", min_length=1)]
    join: _Join | None = None
    where: Text | None = None
    select: Selected | None = None
    window: _Window | None = None
    aggregate: tuple[Aggregate, ...] | None = None
    bound: PositiveDuration
    margin: PositiveDuration | None = None
    policy: _Policy = _Policy()
    replicas: Annotated[int, Field(ge=1, le=26)] = 2
    children: Annotated[int, Field(ge=1, le=1024)] = 1
    parts: Annotated[int, Field(ge=1, le=1024)] = 1
    results: _Results = _Results()


class _File(_Shape):
    apiVersion: Literal["slackwater/v1"]  # noqa: N815 - the file's spelling
    clock: Clock = "wall"
    prefix: Prefix = ""
    streams: Annotated[dict[str, Any], Field(min_length=1)]
    queries: Annotated[dict[str, Any], Field(min_length=1)]


_S = TypeVar("_S", bound=_Shape)


class _Checker:
    """Turns the content into a deployment, reporting whatever is in the way."""

    def __init__(self, content: Any, findings: _Findings, micro_batch: bool) -> None:
        self._content = content
        self._findings = findings
        self._micro_batch = micro_batch
        self._streams: dict[str, StreamSpec] = {}
        self._queries: dict[str, QuerySpec] = {}
        self._names = UNPREFIXED
        self._needed_us: dict[str, int] = {}
        """Per query the margins of all stages on the longest way to its results."""

    def deployment(self) -> Deployment | None:
        """None if anything was wrong."""
        top = self._shaped(_File, self._content, ())
        if top is not None:
            self._names = Names(top.prefix)
        # A fault at the top, say a wrong apiVersion, does not hide those below it.
        streams, queries = self._section("streams"), self._section("queries")
        for name, value in streams.items():
            self._stream(name, value)
        for name in self._in_order(queries):
            self._query(name, queries[name], streams, queries)
        if top is None or self._findings.any():
            return None
        deployment = Deployment(top.clock, self._streams, self._queries, self._names)
        self._advise(deployment)
        return None if self._findings.any() else deployment

    def _in_order(self, queries: Mapping[str, Any]) -> list[str]:
        """Each query behind those that it reads; a circle is an error where it closes."""
        depth: dict[str, int] = {}
        open_: list[str] = []

        def visit(name: str) -> None:
            open_.append(name)
            below = 0
            for i, source in enumerate(_written_sources(queries[name])):
                place: Place = ("queries", name, "from", i)
                if source in open_:
                    circle = " -> ".join([*open_[open_.index(source) :], source])
                    self._findings.error(place, f"queries cannot read in a circle: {circle}")
                elif source in queries:
                    if source not in depth and len(open_) <= CHAIN_QUERIES_MAX:
                        visit(source)
                    below = max(below, depth.get(source, CHAIN_QUERIES_MAX))
            if below == CHAIN_QUERIES_MAX:
                reason = f"reads queries that read queries, more than {CHAIN_QUERIES_MAX} deep"
                self._findings.error(("queries", name, "from"), reason)
            depth[open_.pop()] = below + 1

        for name in queries:
            if name not in depth:
                visit(name)
        return list(depth)

    def _section(self, name: str) -> Mapping[str, Any]:
        section = self._content.get(name) if isinstance(self._content, dict) else None
        return section if isinstance(section, dict) else {}

    def _shaped(self, shape: type[_S], value: Any, place: Place) -> _S | None:
        # What is below the sections is looked at with the stream or query that it belongs to.
        empty = [path for path in empty_fields(value) if shape is not _File or len(path) == 1]
        for path in empty:
            self._findings.error((*place, *path), EMPTY)
        try:
            shaped = shape.model_validate(value)
        except ValidationError as error:
            for details in error.errors():
                inside, reason = _explained(details, shape)
                if inside not in empty:
                    self._findings.error((*place, *inside), reason)
            return None
        return None if empty else shaped

    def _named(self, name: str, place: Place) -> None:
        if not _NAME.fullmatch(name):
            self._findings.error(
                place,
                f"{name!r} cannot be a name: small letters, digits and -, beginning with a letter, "
                "at most 63 characters",
            )

    # Streams.

    def _stream(self, name: str, value: Any) -> None:
        place: Place = ("streams", name)
        self._named(name, place)
        shape = self._shaped(_Stream, value, place)
        if shape is None:
            return
        key = self._key(shape, (*place, "key"))
        times = self._time(shape, (*place, "time"))
        self._source(shape, place)
        self._silence(shape, place)
        if key is None or times is None:
            return
        self._streams[name] = StreamSpec(
            name=name,
            key=key,
            time=times,
            fields=tuple(FieldSpec(n, source) for n, source in shape.fields_.items()),
            csv=CsvSpec() if shape.csv is None else CsvSpec(shape.csv.delimiter, shape.csv.decimal),
            topic=_topic_spec(shape.topic),
            disorder_us=shape.disorder,
            expect_every_us=LEARNING.first_us if shape.expect_every == AUTO else shape.expect_every,
            learns_gaps=shape.expect_every == AUTO,
        )

    def _key(self, shape: _Stream, place: Place) -> KeySpec | None:
        key = shape.key
        if not self._exactly_one(key, ("column", "field", "value"), place):
            return None
        self._fits(shape, key.column, key.field, place)
        return KeySpec(key.column, key.field, key.value)

    def _time(self, shape: _Stream, place: Place) -> TimeSpec | None:
        given = shape.time
        sound = self._exactly_one(given, ("column", "columns", "field"), place)
        sound = self._exactly_one(given, ("unit", "format"), place) and sound
        if not sound:
            return None
        columns = given.columns or ((given.column,) if given.column else ())
        self._fits(shape, columns, given.field, place)
        if len(columns) > 1 and given.unit in ("s", "ms", "us"):
            reason = "several columns joined are no number: say unit: iso or a format"
            self._findings.error((*place, "unit"), reason)
        if given.format is not None:
            self._format(given.format, (*place, "format"))
        return TimeSpec(columns, given.field, given.unit, given.format)

    def _format(self, written: str, place: Place) -> None:
        try:
            time.strptime("", written)
        except ValueError as error:
            if "does not match format" not in str(error):
                self._findings.error(place, f"{written!r} is no strptime format: {error}")
        except re.error:
            self._findings.error(place, f"{written!r} is no strptime format: a part is twice in it")
        if not re.search(r"%[YyGcx]", written.replace("%%", "")):
            self._findings.error(place, f"{written!r} has no year (%Y)")

    def _fits(self, shape: _Stream, columns: object, field: object, place: Place) -> None:
        """A topic's readings have fields, a file's have columns."""
        if shape.topic is not None and columns:
            reason = "the readings of a topic have no columns: say field"
            self._findings.error(place, reason)
        if shape.topic is None and field:
            reason = "field is for a stream with a topic: a column of a file is column"
            self._findings.error(place, reason)

    def _source(self, shape: _Stream, place: Place) -> None:
        if shape.csv is not None:
            if shape.topic is not None:
                self._findings.error((*place, "csv"), "a stream with a topic reads no file")
            delimiter = shape.csv.delimiter
            visible = delimiter == "\t" or (delimiter.isascii() and delimiter.isprintable())
            taken = delimiter == shape.csv.decimal or delimiter.isalnum() or delimiter in '"-+. _'
            if taken or not visible:
                reason = f"{delimiter!r} cannot delimit columns: take one such as , ; | or a tab"
                self._findings.error((*place, "csv", "delimiter"), reason)
        if shape.topic is None:
            return
        name = shape.topic.name
        if not _TOPIC.fullmatch(name) or name in (".", ".."):
            self._findings.error((*place, "topic", "name"), f"{name!r} is no name of a topic")
        elif name.startswith("__"):
            reason = f"{name!r} is one of Kafka's own topics"
            self._findings.error((*place, "topic", "name"), reason)
        elif name.startswith(OURS) or self._names.is_ours(name):
            reason = f"{name!r} is one of slackwater's own topics"
            self._findings.error((*place, "topic", "name"), reason)
        if shape.topic.format == "avro":
            self._later((*place, "topic", "format"), "topics of Avro readings")

    def _silence(self, shape: _Stream, place: Place) -> None:
        """What no readings mean must be said where nobody else knows it (rule 9)."""
        if shape.sporadic and shape.expect_every is not None:
            reason = "takes expect_every or sporadic: true, not both"
            self._findings.error((*place, "sporadic"), reason)
        if shape.topic is not None and not shape.sporadic and shape.expect_every is None:
            self._findings.error((*place, "expect_every"), SILENCE_UNDECLARED)

    # Queries.

    def _query(
        self, name: str, value: Any, streams: Mapping[str, Any], queries: Mapping[str, Any]
    ) -> None:
        place: Place = ("queries", name)
        self._named(name, place)
        if name in streams:
            self._findings.error(place, f"a stream is called {name!r} already")
        shape = self._shaped(_Query, value, place)
        if shape is None:
            return
        known = self._sources(shape, streams, queries, place)
        sound, window = self._window(shape, place)
        self._not_yet(shape, place)
        self._policy(shape, place)
        margin = self._margin(name, shape, place)
        join = self._join(shape, place)
        if known:
            self._expressions(shape, join, place)
        if not known or not sound:
            return
        self._queries[name] = QuerySpec(
            name=name,
            sources=shape.from_,
            where=shape.where,
            select=None if shape.select is None else tuple(shape.select.items()),
            window=window,
            aggregate=shape.aggregate or (),
            bound_us=shape.bound,
            margin_us=margin,
            failure_policy=shape.policy.failure,
            stabilization_policy=shape.policy.stabilization,
            replicas=shape.replicas,
            children=shape.children,
            parts=shape.parts,
            results_format=shape.results.format,
            join=join,
        )

    def _sources(
        self,
        shape: _Query,
        streams: Mapping[str, Any],
        queries: Mapping[str, Any],
        place: Place,
    ) -> bool:
        """True if all sources are sound streams or queries."""
        seen: set[str] = set()
        for i, source in enumerate(shape.from_):
            at = (*place, "from", i)
            if source in seen:
                self._findings.error(at, f"{source!r} is here twice")
            elif source in queries and source not in streams:
                if isinstance(self._content, dict) and self._content.get("clock") == "data":
                    self._later(at, f"chains with clock: data ({source!r} is a query)")
            elif source not in streams:
                meant = _meant(source, [*streams, *queries])
                self._findings.error(at, f"there is no stream or query {source!r}{meant}")
            seen.add(source)
        if shape.children > len(shape.from_):
            reason = f"{shape.children} children cannot share {len(shape.from_)} streams"
            self._findings.error((*place, "children"), reason)
        return all(source in self._streams or source in self._queries for source in shape.from_)

    def _join(self, shape: _Query, place: Place) -> JoinSpec | None:
        join = shape.join
        if join is None:
            return None
        at = (*place, "join")
        for side, source in (("left", join.left), ("right", join.right)):
            if source in self._queries:
                self._later((*at, side), f"joins of queries ({source!r} is one)")
        if sorted(shape.from_) != sorted((join.left, join.right)):
            reason = f"left and right must be the two sources of from, {', '.join(shape.from_)}"
            self._findings.error(at, reason)
        if shape.children > 1:
            reason = "a join has one child: both its streams must come to the same orderer"
            self._findings.error((*place, "children"), reason)
        if join.within > join_within_us_max:
            reason = (
                f"{format_duration_us(join.within)} is too long, an orderer keeps that much of "
                f"both streams in memory: at most {format_duration_us(join_within_us_max)}"
            )
            self._findings.error((*at, "within"), reason)
        return JoinSpec(join.left, join.right, join.within)

    def _window(self, shape: _Query, place: Place) -> tuple[bool, WindowSpec | None]:
        """Whether it is sound, and what it is: None for a query that answers with readings."""
        if shape.window is None:
            if shape.aggregate is not None:
                reason = "needs a window: without one the readings themselves are the result"
                self._findings.error((*place, "aggregate"), reason)
            return shape.aggregate is None, None
        if not shape.aggregate:
            self._findings.error((*place, "aggregate"), "is required with a window")
        elif len(set(shape.aggregate)) < len(shape.aggregate):
            self._findings.error((*place, "aggregate"), "names a figure twice")
        size = shape.window.size
        slide = size if shape.window.slide is None else shape.window.slide
        if slide > size:
            reason = f"{format_duration_us(slide)} is larger than size, {format_duration_us(size)}"
            self._findings.error((*place, "window", "slide"), reason)
            return False, None
        window = WindowSpec(size, slide)
        if (too_many := too_many_windows(window)) is not None:
            self._findings.error((*place, "window", "slide"), too_many)
            return False, None
        return True, window

    def _not_yet(self, shape: _Query, place: Place) -> None:
        if shape.results.format != "json":
            self._later((*place, "results", "format"), "results in formats other than json")

    def _policy(self, shape: _Query, place: Place) -> None:
        """What a user who chooses a policy gives up with it (DPC, section 6.1)."""
        bound = format_duration_us(shape.bound)
        delays = {"failure": "a failure", "stabilization": "corrections"}
        for phase, during in delays.items():
            if getattr(shape.policy, phase) == "delay":
                self._findings.warn(
                    (*place, "policy", phase),
                    f"delay: during {during} every answer comes as late as the bound allows "
                    f"({bound}), to have fewer tentative ones",
                )
        if shape.policy.stabilization == "suspend":
            self._findings.warn(
                (*place, "policy", "stabilization"),
                "suspend: nothing new is answered while corrections are made: where those take "
                f"longer than the bound ({bound}), it is not kept",
            )

    def _margin(self, name: str, shape: _Query, place: Place) -> int:
        least = margin_micro_batch_us if self._micro_batch else margin_default_us
        margin = least if shape.margin is None else shape.margin
        before = max((self._needed_us.get(source, 0) for source in shape.from_), default=0)
        needed = self._needed_us[name] = before + 2 * margin
        if shape.bound < needed:
            stages = (
                f"the stages of the queries it reads, and two of its own with a margin of "
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
            mode = "in micro-batches" if self._micro_batch else "of this pipeline"
            self._findings.warn(
                (*place, "margin"),
                f"{format_duration_us(margin)} is less than a stage {mode} takes "
                f"({format_duration_us(least)}): answers may come later than the bound",
            )
        return margin

    def _expressions(self, shape: _Query, join: JoinSpec | None, place: Place) -> None:
        known = Deployment("wall", self._streams, self._queries)
        sources = (known.fields_of(name) for name in shape.from_)
        fields = tuple(dict.fromkeys(name for names in sources for name in names))
        if join is not None:
            sides = (self._streams.get(name) for name in (join.left, join.right))
            fields = joined_fields(*(side.field_names if side else () for side in sides))
        if (reason := too_many_fields(len(fields))) is not None:
            self._findings.error((*place, "from"), reason)
            return
        if shape.where is not None:
            self._expression(shape.where, (*place, "where"), lambda t: compile_predicate(t, fields))
        for name, text in (shape.select or {}).items():
            at = (*place, "select", name)
            self._expression(text, at, lambda t: compile_projection([("", t)], fields))

    def _expression(self, text: str, place: Place, compile_: Callable[[str], object]) -> None:
        try:
            compile_(text)
        except ExpressionError as error:
            shown = text if len(text) <= 60 else text[:57] + "..."
            self._findings.error(place, f"{shown!r}: {error}")

    # Across fields.

    def _exactly_one(self, shape: _Shape, names: Sequence[str], place: Place) -> bool:
        given = [name for name in names if getattr(shape, name) is not None]
        if len(given) != 1:
            wanted = f"{', '.join(names[:-1])} or {names[-1]}"
            found = " and ".join(given) or "none"
            self._findings.error(place, f"takes exactly one of {wanted}, has {found}")
        return len(given) == 1

    def _later(self, place: Place, what: str) -> None:
        self._findings.error(place, f"this version does not do {what} yet")

    def _advise(self, deployment: Deployment) -> None:
        if deployment.clock == "wall":
            for name, stream in deployment.streams.items():
                if stream.expect_every_us is None and stream.disorder_us < disorder_advised_us:
                    self._findings.warn(
                        ("streams", name),
                        "has neither expect_every nor a disorder of at least "
                        f"{format_duration_us(disorder_advised_us)}: a live reading that is on its "
                        "way for longer is late",
                    )
        for name, query in deployment.queries.items():
            if query.join is not None and query.join.within_us > join_within_advised_us:
                self._findings.warn(
                    ("queries", name, "join", "within"),
                    "every bucket looks through the readings of so long a time: live streams of "
                    f"several readings/s need {format_duration_us(join_within_advised_us)} or less",
                )
        for name, child, rate in _rates(deployment):
            too_many = too_many_records(f"{name}.{child}", rate)
            if too_many is not None and deployment.clock == "wall":
                self._findings.error(("queries", name, "from"), too_many)
            elif rate > orderer_records_per_s_max:
                self._findings.warn(
                    ("queries", name, "from"),
                    f"orderer {name}.{child} would read {rate:.0f} records/s, more than "
                    f"{orderer_records_per_s_max}: raise children or slide",
                )


def _rates(deployment: Deployment) -> Iterator[tuple[str, int, float]]:
    """Records/s at each orderer: a proxy flushes at the cut points of all queries on a stream."""
    hour_us = 3_600_000_000
    per_s = hour_us / 1_000_000
    base = Grid(bucket_of_windows_us, None).count(0, hour_us) / per_s
    rates: dict[str, float] = {}
    for stream in deployment.streams:
        readers = (q for q in deployment.queries.values() if stream in q.sources)
        grids = {(q.bucket_us(), q.window) for q in readers}
        cuts = (Grid(w, window).count(0, hour_us) for w, window in grids)
        rates[stream] = base + sum(count / per_s - base for count in cuts)
    for query in deployment.queries.values():
        # At least the boundaries of its windows; how many rows they have nobody knows yet.
        slide_us = query.units(query.bucket_us()).slide_us
        rates[query.name] = query.parts * 1_000_000 / slide_us
    for name, query in deployment.queries.items():
        for child in range(query.children):
            yield name, child, sum(rates[s] for s in deployment.child_streams(query, child))


def _written_sources(query: Any) -> list[str]:
    """The names in a query's ``from``, as far as they are names at all."""
    written = query.get("from") if isinstance(query, dict) else None
    return [name for name in written if isinstance(name, str)] if isinstance(written, list) else []


def _topic_spec(topic: _Topic | None) -> TopicSpec | None:
    return None if topic is None else TopicSpec(topic.name, topic.format, topic.from_)


def _explained(details: ErrorDetails, shape: type[_Shape]) -> tuple[Place, str]:
    """Where inside the shape, and what is wrong, in the words of the file."""
    place = tuple(part for part in details["loc"] if part != "[key]")
    context, value = details.get("ctx", {}), details["input"]
    match details["type"]:
        case "extra_forbidden":
            return place, f"unknown field{_meant(str(place[-1]), _siblings(shape, place))}"
        case "missing":
            return place, "is required"
        case "value_error":
            return place, str(context["error"])
        case "literal_error":
            shown = "null" if value is None else repr(value)
            return place, f"must be {context['expected']}, not {shown}"
        case "model_type" | "dict_type" | "model_attributes_type":
            return place, "must be a mapping, name: value"
        case "list_type" | "tuple_type":
            return place, "must be a list, [a, b]"
        case "string_type":
            return place, "must be text"
        case "string_unicode":
            return place, "holds a character that is not text"
        case "int_parsing" | "int_type":
            return place, f"{value!r} is not a whole number"
        case "too_short" | "string_too_short":
            return place, "must not be empty"
        case "greater_than_equal" | "less_than_equal":
            limit = context.get("ge", context.get("le"))
            word = "at least" if "ge" in context else "at most"
            return place, f"{value} is out of range: must be {word} {limit}"
    return place, details["msg"]


def _siblings(shape: type[_Shape], place: Place) -> list[str]:
    """The fields that are known where an unknown one was found."""
    for part in place[:-1]:
        info = next((f for n, f in shape.model_fields.items() if part in (n, f.alias)), None)
        inner = [t for t in _types(info.annotation) if issubclass(t, _Shape)] if info else []
        if not inner:
            return []
        shape = inner[0]
    return [field.alias or name for name, field in shape.model_fields.items()]


def _types(annotation: Any) -> list[type[Any]]:
    options = getattr(annotation, "__args__", (annotation,))
    return [option for option in options if isinstance(option, type)]


def _meant(written: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(written, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
