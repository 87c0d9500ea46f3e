"""``slackwater ingest``: submits a file's readings to a running deployment.

The stream is in the deployment file, or a query has added it (`slackwater query apply`).

The stream's proxy does the work: it assigns the ids, stores its position in the file, and continues
after a restart. The command validates the file as far as possible and submits it through the
proxy's inbox in the data directory.
"""

from __future__ import annotations

from pathlib import Path

from slackwater.cli.common import emit
from slackwater.deployment.parse import load_deployment
from slackwater.model.errors import EnvironmentProblem, UsageError
from slackwater.proxy.csvfile import CsvFile
from slackwater.proxy.sensors import hand_over
from slackwater.runtime.local.datadir import is_running, read_run
from slackwater.runtime.local.placed_proxies import added_streams
from slackwater.runtime.service.clock import SystemClock


def run_ingest(
    data_dir: Path,
    stream: str,
    file: Path,
    deployment: Path | None,
    speed: float | None,
    as_now: bool,
) -> None:
    """Validate the file and put the job into the inbox."""
    run = read_run(data_dir)
    if run is None or not is_running(data_dir):
        raise EnvironmentProblem(f"no deployment runs from {data_dir}: start `slackwater up`")
    spec = load_deployment(deployment or Path(run.deployment))
    streams = spec.streams
    if stream not in streams:
        streams = {**streams, **added_streams(data_dir, run.lives)}
    if stream not in streams:
        raise UsageError(f"there is no stream {stream}, only {', '.join(streams)}")
    if (topic := streams[stream].topic) is not None:
        raise UsageError(f"stream {stream} is fed by topic {topic.name}: write to the topic")
    if (mqtt := streams[stream].mqtt) is not None:
        raise UsageError(f"stream {stream} is fed by MQTT broker {mqtt.address}: publish there")
    if streams[stream].http is not None:
        raise UsageError(f"stream {stream} is fed over HTTP: post the file to /streams/{stream}")
    if spec.clock != "data" and not as_now:
        raise UsageError(
            "this deployment uses the wall clock, and the readings of a file are in the past: add"
            " --as-now to shift their times, or use clock: data"
        )
    if speed is not None and not 0 < speed < float("inf"):
        raise UsageError(f"--speed {speed:g}: must be a number above 0")
    CsvFile(streams[stream], file).verify()  # reports a missing column or a truncated archive
    name = f"{SystemClock().now_us()}-{file.name}"
    hand_over(data_dir, stream, name, file, speed=speed, as_now=as_now)
    emit(f"{file} is passed to proxy/{stream}; `slackwater status` shows its progress")
