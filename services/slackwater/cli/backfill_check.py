"""``slackwater backfill --check``: the results of a history against a batch computation.

The judge of rehearsals reads the same files with readers of its own and computes the windows from
their readings, row by row. All results of the query are then read from its topics.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from slackwater.cli.common import emit
from slackwater.cli.meanwhile import report_meanwhile
from slackwater.judge.check import Checker
from slackwater.judge.history import history_checker, read_files
from slackwater.model.deployment import Deployment
from slackwater.model.errors import CheckFailed, EnvironmentProblem
from slackwater.model.names import RESULT_KINDS
from slackwater.runtime.logs.transport import LogError, Transport, read_to_end
from slackwater.runtime.service.registry import QueryDefinition

SHOWN_MAX: Final = 5
Counts = Mapping[str, Mapping[str, int]]
"""By stream and reason, how many readings are in quarantine."""


def check_history(
    transport: Transport,
    deployment: Deployment,
    definition: QueryDefinition,
    files: Mapping[str, Sequence[Path]],
    counts: Counts,
) -> str:
    """Compare the results of a query; return the verdict as a line.

    Raises:
        CheckFailed: they differ; the first differences are named.
        EnvironmentProblem: the results cannot be read.
    """
    emit("... checking: a batch computation over the same files")
    try:
        with report_meanwhile("the batch computation to compare with"):
            checker, findings = _checked(transport, deployment, definition, files, counts)
    except LogError as error:
        raise EnvironmentProblem(f"the results cannot be read: {error}") from error
    verdict = checker.finish()
    findings = [*verdict.findings, *findings]
    counted = ", ".join(
        f"{getattr(verdict, kind):,} {kind}" for kind in ("lost", "doubled", "uncorrected", "wrong")
    )
    what = "windows" if definition.spec.window is not None else "buckets of readings"
    line = (
        f"checked {verdict.rows:,} rows in {verdict.windows:,} {what} against a batch computation"
        f" over the same files: {counted}"
    )
    if not findings:
        return f"{line}; all results equal the batch computation"
    emit(line)
    more = f"; and {len(findings) - SHOWN_MAX} more" if len(findings) > SHOWN_MAX else ""
    raise CheckFailed(
        f"the results of {definition.spec.name} differ from the batch computation:"
        f" {'; '.join(findings[:SHOWN_MAX])}{more}"
    )


def _checked(
    transport: Transport,
    deployment: Deployment,
    definition: QueryDefinition,
    files: Mapping[str, Sequence[Path]],
    counts: Counts,
) -> tuple[Checker, list[str]]:
    """Return the checker that has all results, and what is counted wrongly."""
    inputs = {
        stream: read_files(deployment.streams[stream], of, crashed(transport, stream))
        for stream, of in files.items()
    }
    query = deployment.queries[definition.spec.name]
    checker = history_checker(
        deployment.in_order(), inputs, query, definition.e0_us, definition.w_us
    )
    for part in range(query.parts):
        for record in _results(transport, query.name, part):
            checker.feed(record)
    findings = [
        f"quarantine: {counts.get(stream, {}).get(reason, 0)} {reason} readings of {stream}, not"
        f" {count}"
        for stream, sent in inputs.items()
        for reason, count in (("late", len(sent.late)), ("malformed", sent.malformed))
        if counts.get(stream, {}).get(reason, 0) != count
    ]
    return checker, findings


def _results(transport: Transport, query: str, part: int) -> Iterator[dict[str, Any]]:
    """Yield the results of a part in their order, as a reader of a live query would see them."""
    topics = [transport.names.results(query, kind) for kind in RESULT_KINDS]
    logs = [_records(transport, (topic, part)) for topic in topics]
    return heapq.merge(*logs, key=lambda record: record["seq"])


def _records(transport: Transport, log: tuple[str, int]) -> Iterator[dict[str, Any]]:
    for raw in read_to_end(transport, log, isolation="read_committed"):
        record = orjson.loads(raw.value)
        yield record | {"seen_at": record.get("emitted_at")}


def crashed(transport: Transport, stream: str) -> dict[int, set[int]]:
    """Return the places that crashed their reader, by the number of the file of the history."""
    found: dict[int, set[int]] = {}
    for raw in read_to_end(transport, (transport.names.quarantine(stream), 0)):
        entry = orjson.loads(raw.value)
        if entry["reason"] == "crash":
            file, _, place = entry["position"].rpartition(":")
            found.setdefault(int(file.partition("+")[2] or 0), set()).add(int(place))
    return found
