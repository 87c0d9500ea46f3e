"""``slackwater ingest``: submits a file's readings to a running deployment.

The stream is in the deployment file, or a query has added it (`slackwater query apply`).

The stream's proxy does the work: it assigns the ids, stores its position in the file, and continues
after a restart. The command validates the file as far as possible and submits it through the
proxy's inbox in the data directory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from slackwater.cli.common import emit
from slackwater.deployment.parse import load_deployment
from slackwater.deployment.sites import check_here
from slackwater.formats.csvtext import CsvSource
from slackwater.formats.readingsfile import open_readings
from slackwater.machine.placed_proxies import running_streams
from slackwater.model.deployment import StreamSpec
from slackwater.model.errors import EnvironmentProblem, UsageError
from slackwater.proxy.replay import PIECE_BYTES_PACED, Replay
from slackwater.proxy.sensors import SharedStart, hand_over, stop_jobs
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.datadir import is_running, read_run

COUNTED_BYTES_MAX: Final = 256 * 1024 * 1024
BLOCK_BYTES: Final = 4 * 1024 * 1024
LEAD_US: Final = 2_000_000
"""From the command to the first reading, if files are shifted together: a proxy looks into its
inbox every half second, and must not find readings that are due already."""


def run_ingest(
    data_dir: Path,
    files: Mapping[str, Path],
    deployment: Path | None,
    speed: float | None,
    as_now: bool,
) -> None:
    """Validate the files, by stream, and put the jobs into the inboxes.

    Several files that are shifted have one shift: the earliest of all their readings is now.
    """
    run = read_run(data_dir)
    if run is None or not is_running(data_dir):
        raise EnvironmentProblem(f"no deployment runs from {data_dir}: start `slackwater up`")
    spec = load_deployment(deployment or Path(run.deployment), site=run.site)
    streams = spec.streams
    if not files.keys() <= streams.keys():
        streams = {**streams, **running_streams(data_dir, run.lives)}
    for stream in files:
        check_stream(stream, streams)
    if spec.clock != "data" and not as_now:
        raise UsageError(
            "this deployment uses the wall clock, and the readings of a file are in the past: add"
            " --as-now to shift their times, or use clock: data"
        )
    if speed is not None and not 0 < speed < float("inf"):
        raise UsageError(f"--speed {speed:g}: must be a number above 0")
    if speed is not None and speed > 1 and spec.clock != "data":
        raise UsageError(
            f"--speed {speed:g}: this deployment uses the wall clock, and the readings would soon"
            " be ahead of it (quarantine): use a speed of at most 1, or clock: data"
        )
    for stream, file in files.items():
        open_readings(streams[stream], file).verify()  # a missing column, a truncated archive
    now_us = SystemClock().now_us()
    shared = None
    if as_now and len(files) > 1:
        firsts = (_first_us(streams[stream], file) for stream, file in files.items())
        found = [first for first in firsts if first is not None]
        shared = SharedStart(min(found), now_us + LEAD_US) if found else None
    for stream, file in files.items():
        name = f"{now_us}-{file.name}"
        lines = count_lines(stream, file)
        hand_over(
            data_dir, stream, name, file, speed=speed, as_now=as_now, shared=shared, lines=lines
        )
        of = "" if lines is None else f" ({lines:,} lines)"
        emit(
            f"{file}{of} is passed to proxy/{stream}; `slackwater status` shows how far it is read,"
            f" and `slackwater ingest {stream} --stop` stops it"
        )


def stop_ingesting(data_dir: Path, streams: Sequence[str]) -> None:
    """Stop reading the files that were passed to these streams; what has been read stays.

    Raises:
        EnvironmentProblem: no deployment runs from the directory.
    """
    if not is_running(data_dir):
        raise EnvironmentProblem(f"no deployment runs from {data_dir}: start `slackwater up`")
    for stream in streams:
        stopped = stop_jobs(data_dir, stream)
        for file in stopped:
            emit(f"{file} is read no further into {stream}; what has been read stays")
        if not stopped:
            emit(f"no file is being read into {stream}")


def count_lines(stream: str, file: Path) -> int | None:
    """Return the lines of a file, or None where they are no measure of it: an array, a long file.

    An array of JSON has no lines, and to count those of a large file would take too long.
    """
    if file.stat().st_size > COUNTED_BYTES_MAX:
        return None
    lines, is_first, ends = 0, True, True
    for block in CsvSource(stream, file).blocks(BLOCK_BYTES):
        if is_first and block.lstrip()[:1] == b"[":
            return None
        is_first = False
        lines += block.count(b"\n")
        ends = block.endswith(b"\n")
    return lines + (not ends)


def check_stream(stream: str, streams: Mapping[str, StreamSpec]) -> None:
    """Refuse a stream that is unknown or not fed from files."""
    if stream not in streams:
        raise UsageError(f"there is no stream {stream}, only {', '.join(streams)}")
    check_here(streams[stream])
    if (topic := streams[stream].topic) is not None:
        raise UsageError(f"stream {stream} is fed by topic {topic.name}: write to the topic")
    if (mqtt := streams[stream].mqtt) is not None:
        raise UsageError(f"stream {stream} is fed by MQTT broker {mqtt.address}: publish there")
    if streams[stream].http is not None:
        raise UsageError(
            f"stream {stream} is fed over HTTP: post the file (`curl --data-binary @FILE -H"
            f" 'Content-Type: application/x-ndjson' URL/streams/{stream}`; `slackwater up` prints"
            " the URL)"
        )


def _first_us(spec: StreamSpec, file: Path) -> int | None:
    """Return the time of a file's first reading; None if it has none."""
    return Replay(spec, file, piece_bytes=PIECE_BYTES_PACED).due_us(1)
