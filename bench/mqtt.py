"""Rate of MQTT messages from a local Mosquitto into the spool, acknowledged.

    python -m bench.mqtt [MESSAGES]

The log after the spool is in memory, so only the input is measured: connection, parsing, a durable
transaction for each group, acknowledgements. The publisher is one `mosquitto_pub`, whose own rate
may be the limit.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

from tests.support.mosquitto import Mosquitto
from tests.support.mqtt_world import mqtt_spec
from tests.support.proxy_world import S, World

from slackwater.model.mqtt import MqttVersion
from slackwater.proxy.inputs import StreamOptions, make_input
from slackwater.proxy.shell import turn
from slackwater.runtime.service.clock import SystemClock

FORMS: tuple[tuple[MqttVersion, int], ...] = (("5", 10), ("5", 200), ("3.1.1", 10), ("3.1.1", 200))


def measure(broker: Mosquitto, version: MqttVersion, in_flight: int, messages: int) -> None:
    """Publish messages, read them, and print the rate and the CPU time per message."""
    spec = mqtt_spec(sequence=True, disorder_us=3_600 * S, in_flight=in_flight)
    assert spec.mqtt is not None
    client_id = f"bench-{version}-{in_flight}"
    mqtt = replace(
        spec.mqtt, host="127.0.0.1", port=broker.port, version=version, client_id=client_id
    )
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), spec=replace(spec, mqtt=mqtt))
        context = world.context()
        context.clock = SystemClock()
        source = make_input(context, StreamOptions())
        source.begin()
        while not source.detail()["connected"]:
            turn(context, source, context.clock.now_us())
        at = time.time_ns() // 1_000
        lines = [json.dumps({"at": at, "t": i, "n": i}).encode() for i in range(messages)]
        began, cpu = time.perf_counter(), time.process_time()
        publisher = threading.Thread(target=broker.publish, args=("lab/d", lines))
        publisher.start()
        while source.detail()["readings"] < messages:
            turn(context, source, context.clock.now_us())
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        publisher.join()
        source.close()
        print(
            f"MQTT {version}, window {in_flight}: {messages / took:,.0f} messages/s,"
            f" {cpu / messages * 1e6:.0f} us of CPU a message"
        )


def main() -> None:
    """Measure both versions with a small and a large window."""
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    with tempfile.TemporaryDirectory() as folder:
        broker = Mosquitto(Path(folder), ["max_inflight_messages 200"])
        broker.start()
        try:
            for version, in_flight in FORMS:
                measure(broker, version, in_flight, messages)
        finally:
            broker.stop()


if __name__ == "__main__":
    main()
