"""Writes what a deployment file declares as statements, and the other way as YAML.

What ``parse`` makes of the printed statements is the given content. The content is valid: of a
deployment, or of a file that was checked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from slackwater.deployment.yaml_text import scalar
from slackwater.deployment.yaml_text import value as value_text
from slackwater.sql.create_query import OPTIONS
from slackwater.sql.cursor import INTERVAL_UNITS
from slackwater.sql.identifiers import PLAIN_NAME, identifier, quoted

_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?", re.ASCII)
_DURATION: Final = re.compile(r"([0-9.]+) ?([a-z]+)", re.ASCII)
_UNIT_NAMES: Final = {short: word for word, short in INTERVAL_UNITS.items()}
_TRUE: Final = ("true", "false")


def deployment_text(content: Mapping[str, Any]) -> str:
    """Return the statements that declare a deployment."""
    settings = [
        f"SET {name} = {_value(value)};\n"
        for name, value in content.items()
        if name not in {"apiVersion", *_SECTIONS}
    ]
    streams = [stream_text(name, value) for name, value in content["streams"].items()]
    queries = [query_text(name, value) for name, value in content["queries"].items()]
    alerts = [alert_text(name, value) for name, value in content.get("alerts", {}).items()]
    return "\n".join(filter(None, ["".join(settings), *streams, *queries, *alerts]))


def stream_text(name: str, content: Mapping[str, Any]) -> str:
    """Return CREATE STREAM."""
    return f"CREATE STREAM {identifier(name)} {_options(content)}"


def alert_text(name: str, content: Mapping[str, Any]) -> str:
    """Return CREATE ALERT."""
    return f"CREATE ALERT {identifier(name)} {_options(content)}"


def _options(content: Mapping[str, Any]) -> str:
    options = ",\n".join(f"  {_key(n)} = {_value(v)}" for n, v in content.items())
    return f"WITH (\n{options}\n);\n"


def query_text(name: str, content: Mapping[str, Any], *, replaces: bool = False) -> str:
    """Return CREATE QUERY."""
    window = content.get("window")
    items = _row_items(content) if window is None else _window_items(content)
    lines = [f"CREATE {'OR REPLACE ' if replaces else ''}QUERY {identifier(name)} AS"]
    lines += [f"SELECT {', '.join(items)}", f"FROM {_from(content)}"]
    if "where" in content:
        lines.append(f"WHERE {content['where']}")
    if window is not None:
        lines.append("GROUP BY window_start, key")
    if "having" in content:
        lines.append(f"HAVING {content['having']}")
    lines.append(f"EMIT WITHIN {interval(content['bound'])}")
    options = {n: content[n] for n in OPTIONS if n in content and n != "from"}
    join = content.get("join")
    if join is not None and list(content["from"]) != [join["left"], join["right"]]:
        options["from"] = content["from"]
    if options:
        lines.append(f"WITH {_value(options)}")
    return "\n".join(lines) + ";\n"


def interval(duration: str) -> str:
    """Return a duration of the deployment file as an interval."""
    found = _DURATION.fullmatch(duration.strip())
    assert found is not None, duration
    return f"INTERVAL '{found[1]}' {_UNIT_NAMES[found[2]]}"


def _from(content: Mapping[str, Any]) -> str:
    join, window = content.get("join"), content.get("window")
    sources = content["from"]
    if join is not None:
        tables = f"TABLE {identifier(join['left'])} JOIN TABLE {identifier(join['right'])}"
        tables += f" WITHIN {interval(join['within'])}"
    else:
        tables = " UNION ALL ".join(f"TABLE {identifier(each)}" for each in sources)
    if window is None:
        plain = len(sources) == 1 and join is None
        return identifier(sources[0]) if plain else f"({tables})"
    arguments = [tables]
    if "slide" in window:
        arguments.append(interval(window["slide"]))
    arguments.append(interval(window["size"]))
    if "offset" in window:
        arguments.append(f"OFFSET => {interval(window['offset'])}")
    arguments += [
        f"{name.upper()} => {_string(window[name])}"
        for name in ("starts", "zone")
        if name in window
    ]
    return f"{'HOP' if 'slide' in window else 'TUMBLE'}({', '.join(arguments)})"


def _row_items(content: Mapping[str, Any]) -> list[str]:
    if "select" not in content:
        return ["*"]
    return [
        text if text in {name, f'"{name}"'} else f"{text} AS {identifier(name)}"
        for name, text in content["select"].items()
    ]


def _window_items(content: Mapping[str, Any]) -> list[str]:
    items = ["window_start", "key"]
    aggregate = content["aggregate"]
    of_fields = aggregate if isinstance(aggregate, Mapping) else None
    select = content.get("select") or {"": "COLUMNS(*)"}
    if of_fields is not None:
        given = content.get("select", {})
        select = {name: given.get(name, identifier(name)) for name in of_fields}
    for name, text in select.items():
        is_plain = not name or text in {name, f'"{name}"'}
        declared = aggregate if of_fields is None else of_fields[name]
        for function, parameter, figure in _aggregates(declared):
            arguments = text if parameter is None else f"{text}, {parameter}"
            alias = "" if is_plain else f" AS {identifier(f'{name}_{figure}')}"
            items.append(f"{function}({arguments}){alias}")
    return items


def _aggregates(declared: Sequence[Any]) -> list[tuple[str, str | None, str]]:
    """Return function, parameter and name of each."""
    found: list[tuple[str, str | None, str]] = []
    for each in declared:
        if isinstance(each, str):
            found.append((each, None, each))
        elif "top" in each:
            found.append(("top", str(each["top"]), f"top{each['top']}"))
        else:
            for share in each["quantiles"]:
                digits = str(share).partition(".")[2].rstrip("0")
                found.append(("quantile", str(share), f"p{digits:0<2}"))
    return found


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"({', '.join(f'{_key(n)} = {_value(v)}' for n, v in value.items())})"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    text = str(value)
    if text in _TRUE:
        return text.upper()
    return text if _NUMBER.fullmatch(text) else _string(text)


def _string(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _key(name: str) -> str:
    return name if PLAIN_NAME.fullmatch(name) else quoted(name)


def yaml_text(content: Mapping[str, Any]) -> str:
    """Return the deployment file with this content."""
    lines = [f"{name}: {_yaml(value)}" for name, value in content.items() if name not in _SECTIONS]
    for section in _SECTIONS:
        if section in content:
            lines.append(f"{section}:")
        for name, value in content.get(section, {}).items():
            lines.append(f"  {scalar(name)}:")
            lines += [f"    {scalar(n)}: {_yaml(v)}" for n, v in value.items()]
    return "\n".join(lines) + "\n"


_SECTIONS: Final = ("streams", "queries", "alerts")


def _yaml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(n)}: {_yaml(v)}" for n, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    return value_text(str(value))
