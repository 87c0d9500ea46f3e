"""The part of ``slackwater audit`` for input files: each of their readings is accounted for.

The judge reads the file with readers of its own. The source log is read by the acceptance rule of
readers (rule-10), so a reading that no query can see is not found in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import orjson

from slackwater.cli.common import emit
from slackwater.codec.results import parse_time
from slackwater.codec.source_records import decode_source
from slackwater.judge.accounted import InputAccount, InputAccounting
from slackwater.judge.readers.files import read_stream
from slackwater.judge.readings import FileReading
from slackwater.model.deployment import Deployment, StreamSpec
from slackwater.model.errors import MalformedRecordError, UsageError
from slackwater.model.records import Kind, SourceRecord
from slackwater.runtime.logs.transport import Log, Transport, read_to_end
from slackwater_spark.audit.source_logs import Header, accepted


def check_inputs(deployment: Deployment, paths: Mapping[str, Path]) -> None:
    """Raise ``UsageError`` for a stream that is not read from files."""
    for name in paths:
        spec = deployment.streams.get(name)
        if spec is None:
            known = ", ".join(deployment.streams)
            raise UsageError(f"--input {name}: the deployment has no stream {name}, only {known}")
        if spec.topic is not None or spec.mqtt is not None or spec.http is not None:
            raise UsageError(f"--input {name}: stream {name} is not read from files")


def audit_input(transport: Transport, spec: StreamSpec, path: Path) -> InputAccount:
    """Compare a file with the source log and the quarantine of its stream."""
    sent = read_stream(spec, path)
    log = (transport.names.source(spec.name), 0)
    headers = [header for header, _ in _records(transport, log)]
    accounting = InputAccounting(sent, _complete_from(headers, spec))
    for reading in _readings(transport, log, headers, spec):
        accounting.logged(reading)
    for raw in read_to_end(transport, (transport.names.quarantine(spec.name), 0)):
        entry = orjson.loads(raw.value)
        stime = None if entry["stime"] is None else parse_time(entry["stime"])
        accounting.quarantined(entry["position"], entry["reason"], stime)
    return accounting.account()


def print_account(name: str, path: Path, account: InputAccount) -> None:
    """Print what became of a file's readings."""
    emit(
        f"{name}: of {account.readings} readings in {path} {account.logged} are in the log,"
        f" {account.quarantined} in quarantine, {account.lost} lost; {account.malformed} malformed"
        f" lines, {account.malformed_quarantined} of the stream are in quarantine;"
        f" {account.others} readings in the log are of other inputs"
    )
    for example in account.examples:
        emit(f"  lost: {example}")


def _records(transport: Transport, log: Log) -> Iterator[tuple[Header, SourceRecord]]:
    """Yield the records of a source log; a damaged one is a placeholder."""
    for raw in read_to_end(transport, log):
        try:
            r = decode_source(raw.value, f"{log[0]}:{raw.offset}", raw.offset)
        except MalformedRecordError:
            r = SourceRecord.void(log[0])
        kind = r.kind.name
        yield Header(raw.offset, kind, r.inc, r.first_id, r.last_id, r.boundary, bool(r.gap)), r


def _complete_from(headers: Sequence[Header], spec: StreamSpec) -> int | None:
    """Return the time from which no reading is deleted; None if the log is complete."""
    if not headers or headers[0].offset == 0:
        return None
    first = next((h for h in headers if h.kind != Kind.VOID.name), headers[0])
    return first.boundary + spec.disorder_us


def _readings(
    transport: Transport, log: Log, headers: Sequence[Header], spec: StreamSpec
) -> Iterator[FileReading]:
    """Yield the accepted readings, their values in the order of the stream's fields.

    The log is read a second time: its readings may be more than fit in memory.
    """
    floors = dict(accepted(headers))
    for header, record in _records(transport, log):
        if record.columns is None or header.offset not in floors:
            continue
        columns = record.columns.load()
        by_name = dict(zip(columns.fields, columns.values, strict=True))
        absent = np.full(len(columns.stimes), np.nan)
        values = [by_name.get(field, absent).tolist() for field in spec.field_names]
        keys = [columns.keys[i] for i in columns.key_index.tolist()]
        for stime, key, *row in zip(columns.stimes.tolist(), keys, *values, strict=True):
            if stime >= floors[header.offset]:
                yield FileReading(stime, key, tuple(None if math.isnan(v) else v for v in row))
