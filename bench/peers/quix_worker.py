"""Windows of a second by sensor, in Quix Streams; runs in a separate venv.

Arguments: bootstrap, folder for state, grace in ms, ``rekey`` or ``keyed``, ``final`` or
``updates``. ``final`` publishes a window once, when it is closed; ``updates`` (``current()``)
publishes it at each reading.
"""

from __future__ import annotations

import sys
from typing import Any

import quixstreams.dataframe.windows.aggregations as agg
from quixstreams import Application


def main() -> None:
    """Run until killed."""
    bootstrap, folder, grace_ms, keys, mode = sys.argv[1:]
    app = Application(
        bootstrap,
        consumer_group="peer",
        auto_offset_reset="earliest",
        state_dir=folder,
        processing_guarantee="exactly-once",
        # Answers become readable when a checkpoint is committed: its interval adds latency.
        commit_interval=1.0,
        # A restarted worker takes its partitions back at once, and ends the open transaction of the
        # killed one. (By default the id is a new one: a minute.)
        consumer_extra_config={"group.instance.id": "peer"},
        producer_extra_config={"transactional.id": "peer"},
        loglevel="WARNING",
    )
    readings = app.dataframe(app.topic("readings", timestamp_extractor=stamped))
    if keys == "rekey":
        readings = readings.group_by("sensor")
    windows = readings.tumbling_window(1_000, grace_ms=int(grace_ms)).agg(
        count=agg.Count(), avg=agg.Mean("value"), min=agg.Min("value"), max=agg.Max("value")
    )
    answers = windows.final() if mode == "final" else windows.current()
    answers = answers.apply(named, metadata=True)
    answers.to_topic(app.topic("answers"))
    app.run()


def stamped(value: dict[str, Any], headers: object, timestamp: float, kind: object) -> int:
    """Use the reading's event time."""
    del headers, timestamp, kind
    return int(value["ts"])


def named(value: dict[str, Any], key: Any, timestamp: int, headers: object) -> dict[str, Any]:
    """Return the answer with its sensor."""
    del timestamp, headers
    return value | {"sensor": key.decode() if isinstance(key, bytes) else key}


if __name__ == "__main__":
    main()
