"""Checks of the paths by which a stream finds values in its messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from slackwater.deployment.findings import Findings
from slackwater.deployment.shapes import StreamShape
from slackwater.deployment.yaml_lines import Path as Place
from slackwater.model.message_paths import NoPath, path_text, steps_of

NO_INDEX: Final = (
    "{path} is an element of an array, which {what}: declare a field of a record, or let the "
    "sender divide the array"
)


def check_paths(shape: StreamShape, place: Place, findings: Findings) -> None:
    """Check the paths of a stream of JSON or Avro; names of columns of a file are free."""
    is_of_files = shape.topic is None and shape.mqtt is None and shape.http is None
    if is_of_files and not shape.is_json_file:
        return
    is_avro = shape.topic is not None and shape.topic.format == "avro"
    for where, path in _paths(shape):
        try:
            steps = steps_of(path)
        except NoPath as why:
            findings.error((*place, *where), str(why))
            continue
        if is_avro and any(isinstance(step, int) for step in steps):
            reason = NO_INDEX.format(path=path_text(steps), what="is no value in avro")
            findings.error((*place, *where), reason)


def _paths(shape: StreamShape) -> Iterator[tuple[Place, str]]:
    """Yield the places of all declared paths, and the paths."""
    for name in ("column", "field"):
        for part, given in (("key", shape.key), ("time", shape.time)):
            path = getattr(given, name)
            if path is not None:
                yield (part, name), path
    for part, given in (("key", shape.key), ("time", shape.time)):
        for name, paths in (("columns", given.columns), ("fields", given.fields_)):
            for number, path in enumerate(paths or ()):
                yield (part, name, number), path
    for name, path in shape.fields_.items():
        yield ("fields", name), path
    for name, path in shape.texts.items():
        yield ("texts", name), path
    for part, source in (("mqtt", shape.mqtt), ("topic", shape.topic), ("http", shape.http)):
        if source is not None and source.sequence is not None:
            yield (part, "sequence", "field"), source.sequence.field_
