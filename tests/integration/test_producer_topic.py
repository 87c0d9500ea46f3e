"""``slackwater.Producer`` to a topic: killed and restarted, each reading is committed once."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Consumer, TopicPartition

import slackwater
from slackwater.producer import ProducerError
from slackwater.runtime.logs.topics import TopicLayout, ensure_topics

ROOT = Path(__file__).parents[2]
READINGS = 4_000
SENDER = """
import sys
import numpy as np
import slackwater

bootstrap, topic, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
with slackwater.Producer(
    bootstrap=bootstrap, topic=topic, producer_id="sender-of-" + topic, batch_readings=100
) as sender:
    print(sender.position, flush=True)
    for at in range(sender.position, n, 50):
        ts = np.arange(at, min(at + 50, n))
        sender.send({"node": "n", "ts": ts, "t": ts / 2})
"""


def committed(bootstrap: str, topic: str) -> list[Any]:
    """Return the messages of a topic of one partition, for readers of committed records."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "test", "isolation.level": "read_committed"}
    )
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Any] = []
    while consumer.position([TopicPartition(topic, 0)])[0].offset < end:
        for message in consumer.consume(1_000, 1.0):
            assert message.error() is None
            found.append(json.loads(message.value() or b""))
    consumer.close()
    return found


def run(bootstrap: str, topic: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SENDER, bootstrap, topic, str(READINGS)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def times(messages: Sequence[Any]) -> list[int]:
    return [message["ts"] for message in messages]


def test_a_sender_that_is_killed_at_random_commits_each_reading_once(bootstrap: str) -> None:
    topic = "produced-readings"
    ensure_topics(bootstrap, [TopicLayout(topic, 1, {})], 120)
    seed = time.time_ns() % 10**9
    randomness = random.Random(seed)
    for _ in range(4):
        process = run(bootstrap, topic)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(randomness.random() * 0.2)  # at any point of its transactions
        process.kill()
        process.wait()
        process.stdout.close()
    with run(bootstrap, topic) as last:
        assert last.wait(300) == 0
    assert sorted(times(committed(bootstrap, topic))) == list(range(READINGS)), f"seed {seed}"


def test_columns_and_what_a_topic_does_not_take(bootstrap: str) -> None:
    topic = "produced-columns"
    ensure_topics(bootstrap, [TopicLayout(topic, 1, {})], 120)
    with slackwater.Producer(bootstrap=bootstrap, topic=topic, format="json-columns") as sender:
        sender.send({"node": ["a", "b"], "ts": np.array([1, 2]), "t": [1.5, None]})
    assert committed(bootstrap, topic) == [{"node": ["a", "b"], "ts": [1, 2], "t": [1.5, None]}]
    assert sender.counts == {"accepted": 2}
    stamped = {"node": ["a"], "ts": np.array([1], "datetime64[ms]"), "t": [1.0]}
    with (
        pytest.raises(ProducerError, match="send times as numbers"),
        slackwater.Producer(bootstrap=bootstrap, topic=topic) as sender,
    ):
        sender.send(stamped)


@pytest.mark.parametrize("format_", ["json-array", "json-columns"])
@pytest.mark.parametrize("identity", [None, "divided"])
def test_messages_are_divided_by_their_size(
    bootstrap: str, format_: Any, identity: str | None
) -> None:
    """The last reading is too large for any message; with an identity its batch is aborted."""
    topic = f"divided-{format_}-{identity}"
    ensure_topics(bootstrap, [TopicLayout(topic, 1, {})], 120)
    sender = slackwater.Producer(
        bootstrap=bootstrap,
        topic=topic,
        format=format_,
        producer_id=identity and f"{identity}-{format_}",
        config={"message.max.bytes": 20_000},
    )
    sender.send({"node": [f"sensor-{i}" for i in range(3_000)], "ts": np.arange(3_000)})
    sender.flush()
    sender.send({"node": ["a", "x" * 30_000], "ts": [3_000, 3_001]})
    with pytest.raises(ProducerError, match=r"row 1 of a batch has 30,0\d\d bytes"):
        sender.close()
    found = committed(bootstrap, topic)
    assert len(found) > 1
    if format_ == "json-columns":
        found_ts = [ts for message in found for ts in message["ts"]]
    else:
        found_ts = [reading["ts"] for message in found for reading in message]
    # A batch without an identity is no transaction: its first half may have been written.
    assert len(found_ts) == 3_000 or (identity is None and len(found_ts) == 3_001)
    assert found_ts == list(range(len(found_ts)))


def test_a_topic_that_refuses_a_message_by_its_size_is_an_error(bootstrap: str) -> None:
    topic = "refusing-readings"
    ensure_topics(bootstrap, [TopicLayout(topic, 1, {"max.message.bytes": "5000"})], 120)
    for identity in (None, "refused"):
        sender = slackwater.Producer(
            bootstrap=bootstrap, topic=topic, format="json-columns", producer_id=identity
        )
        sender.send({"node": [f"sensor-{i}" for i in range(3_000)], "ts": np.arange(3_000)})
        with pytest.raises(ProducerError, match=r"set message\.max\.bytes"):
            sender.close(timeout_s=120)
    assert committed(bootstrap, topic) == []


def test_the_page_on_a_topic(bootstrap: str) -> None:
    page = (ROOT / "docs/howto/send-from-python.md").read_text()
    (text,) = re.findall(r"^```python\n(with slackwater.*?)^```$", page, re.DOTALL | re.MULTILINE)
    topic = "readings-of-the-page"
    ensure_topics(bootstrap, [TopicLayout(topic, 1, {})], 120)
    readings = [{"node": "a", "ts": i, "t": i / 2} for i in range(5)]
    for count in (3, 5):
        names = {"slackwater": slackwater, "readings": readings[:count]}
        exec(text.replace("127.0.0.1:9092", bootstrap).replace("lab-readings", topic), names)
    assert committed(bootstrap, topic) == readings
