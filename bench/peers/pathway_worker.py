"""Windows of a second by sensor, in Pathway; runs in a separate venv.

Arguments: bootstrap, folder for state, grace in ms. A window is answered when event time is past
its end by the grace; a later reading withdraws the answer (``diff`` -1) and publishes another one.
"""

from __future__ import annotations

import sys

import pathway as pw


class SensorReading(pw.Schema):  # type: ignore[misc]  # no types are shipped
    """A reading of the topic."""

    ts: int
    sensor: str
    value: float


def main() -> None:
    """Run until killed."""
    bootstrap, folder, grace_ms = sys.argv[1:]
    kafka = {"bootstrap.servers": bootstrap, "group.id": "peer", "auto.offset.reset": "earliest"}
    readings = pw.io.kafka.read(
        kafka, topic="readings", format="json", schema=SensorReading, autocommit_duration_ms=100
    )
    windows = readings.windowby(
        pw.this.ts,
        window=pw.temporal.tumbling(duration=1_000),
        instance=pw.this.sensor,
        # The delay begins with the window, not with its end.
        behavior=pw.temporal.common_behavior(delay=1_000 + int(grace_ms)),
    ).reduce(
        sensor=pw.this._pw_instance,
        start=pw.this._pw_window_start,
        count=pw.reducers.count(),
        avg=pw.reducers.avg(pw.this.value),
        min=pw.reducers.min(pw.this.value),
        max=pw.reducers.max(pw.this.value),
    )
    pw.io.kafka.write(windows, kafka, topic_name="answers", format="json")
    backend = pw.persistence.Backend.filesystem(folder)
    pw.run(
        persistence_config=pw.persistence.Config(backend),
        monitoring_level=pw.MonitoringLevel.NONE,
    )


if __name__ == "__main__":
    main()
