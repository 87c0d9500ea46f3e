"""``slackwater init``: prints a deployment file for files and topics, or writes a new one."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from slackwater.cli.common import emit, warn
from slackwater.cli.drafting.draft import (
    MeasuredStream,
    deployment_text,
    keys_of_sample,
    parsed_times,
)
from slackwater.cli.drafting.guesses import DraftedStream, draft_stream, stream_name
from slackwater.cli.drafting.measured import measure_file, measure_texts
from slackwater.cli.drafting.samples import (
    ReadingSample,
    csv_sample,
    json_sample,
    json_values,
)
from slackwater.deployment.parse import parse_deployment
from slackwater.formats.csvtext import CsvSource
from slackwater.formats.jsonfile import JsonPlaces, is_json
from slackwater.model.errors import EnvironmentProblem, UsageError
from slackwater.runtime.logs.cluster import Cluster

SAMPLE_BYTES: Final = 1024 * 1024
"""How much of a file is looked at; CSV is then read to its end by the guessed declaration."""
ENDINGS: Final = (".csv", ".tsv", ".txt", ".json", ".ndjson", ".jsonl", ".parquet")


def run_init(sources: Sequence[str], output: Path | None, reach: Callable[[], Cluster]) -> None:
    """Draft a deployment file; ``reach`` returns the cluster, and is called for topics only.

    Raises:
        UsageError: the file exists, or a source has no readings from which a stream can be guessed.
        EnvironmentProblem: a topic cannot be read.
    """
    if output is not None and output.exists():
        raise UsageError(f"--output {output}: exists already, and is not overwritten")
    drafts: list[MeasuredStream] = []
    for source in sources:
        sample = _sample(source, reach)
        name, n = sample.name, 2
        while any(each.draft.name == name for each in drafts):
            name, n = f"{sample.name}-{n}", n + 1
        draft = draft_stream(replace(sample, name=name))
        drafts.append(_measured(draft, Path(source)))
    command = shlex.join(["slackwater", "init", *sources])
    text = deployment_text(drafts, command)
    parse_deployment(text, "the draft")  # a draft with an error is a bug
    if output is None:
        emit(text.rstrip("\n"))
        return
    try:
        with output.open("x") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"--output {output}: exists already, and is not overwritten") from None
    except OSError as error:
        raise EnvironmentProblem(f"--output {output}: {error.strerror}") from error
    emit(f"{output}: check its guesses, then `slackwater plan {shlex.quote(str(output))}`")


def _measured(draft: DraftedStream, path: Path) -> MeasuredStream:
    """Measure files completely, the readings of other sources as far as they are in the sample."""
    if not draft.is_of_files:
        times, keys = parsed_times(draft), keys_of_sample(draft)
        return MeasuredStream(
            draft, measure_texts(times, keys) if len(times) == len(keys) else None
        )
    text = deployment_text([MeasuredStream(draft)], "slackwater init")
    spec = parse_deployment(text, "the draft").deployment.streams[draft.name]
    found = MeasuredStream(draft, measure_file(spec, path))
    if found.measured is None:
        warn(f"slackwater: {path}: no row could be read as guessed")
    return found


def _sample(source: str, reach: Callable[[], Cluster]) -> ReadingSample:
    """Return the sample of a file, or of a topic if there is no such file."""
    path = Path(source)
    if not path.exists() and path.parent == Path() and not _has_ending(path):
        from slackwater.cli.drafting.topics import topic_sample

        return topic_sample(reach(), stream_name(source), source)
    name = path.name.removesuffix(".gz")
    for ending in ENDINGS:
        name = name.removesuffix(ending)
    text = _beginning(path)
    if is_json(path):
        return _json_file(stream_name(name), source, path)
    if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "["):
        raise UsageError(
            f"{source}: is JSON, which is told by the end of a name: call the file"
            f" {path.name}.ndjson if it has a reading in each line, or {path.name}.json"
        )
    return csv_sample(stream_name(name), source, text)


def _json_file(name: str, source: str, path: Path) -> ReadingSample:
    """Return the sample of a file of JSON.

    Raises:
        UsageError: its readings are no objects, or have arrays as columns.
    """
    pieces = iter(JsonPlaces(name, path, SAMPLE_BYTES))
    piece = next(pieces, None)
    next(pieces, None)  # an array that goes on in another one is refused
    values, unreadable = json_values([] if piece is None else piece.texts, source)
    found = json_sample(name, source, values, unreadable)
    if found.format == "number":
        raise UsageError(f"{source}: has no object of JSON")
    if found.format != "json":
        raise UsageError(
            f"{source}: its lines have many readings each ({found.format}), which are read from a"
            " topic: write them to one, then `slackwater init TOPIC`"
        )
    return found


def _has_ending(path: Path) -> bool:
    return path.suffix in (*ENDINGS, ".gz")


def _beginning(path: Path) -> str:
    """Return the first complete lines of a file, unpacked."""
    if not path.exists():
        raise UsageError(f"{path}: there is no such file")
    block = next(CsvSource(path.name, path).blocks(SAMPLE_BYTES), b"")
    if b"\0" in block:
        raise UsageError(f"{path}: is no text: only CSV and JSON can be guessed")
    return block.decode(errors="replace")
