"""The embedded broker is a real one: acknowledged records survive kill -9, and so does its port."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.support.starting import make_topics
from tests.support.waiting import WAIT_S_MAX, eventually

from slackwater.machine.broker import FEATURES, EmbeddedBroker, answers, features_file
from slackwater.model.errors import EnvironmentProblem
from slackwater.model.limits import RECORD_BATCH_BYTES_MAX
from slackwater.runtime.logs.admin import Admin


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A separate broker, because these tests end it in every way."""
    with EmbeddedBroker(tmp_path_factory.mktemp("drilled")) as running:
        yield running


def create(bootstrap: str, topic: str) -> None:
    make_topics(bootstrap, [topic])


def write(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "message.max.bytes": RECORD_BATCH_BYTES_MAX}
    )
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(WAIT_S_MAX) == 0


def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        messages = consumer.consume(count, timeout=WAIT_S_MAX)
        return [message.value() or b"" for message in messages]
    finally:
        consumer.close()


def test_what_was_acknowledged_outlives_a_kill_and_the_port_stays(broker: EmbeddedBroker) -> None:
    before = broker.bootstrap
    create(before, "kept")
    write(before, "kept", [b"one", b"two"])
    broker.kill()
    assert not broker.is_running()
    assert not answers(before, timeout_s=0.2)
    broker.start()
    assert broker.bootstrap == before
    assert read(before, "kept", 2) == [b"one", b"two"]


def test_a_clean_stop_is_clean_and_a_new_object_finds_all_again(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a slow machine it is killed before it has ended by itself.
    monkeypatch.setattr("slackwater.machine.broker.STOP_S_MAX", WAIT_S_MAX)
    before, pid = broker.bootstrap, broker.pid
    broker.stop()
    assert not psutil.pid_exists(pid)
    assert "shut down completed" in broker.log_path.read_text()
    broker.stop()  # stopping a stopped broker has no effect
    with EmbeddedBroker(broker.data_dir) as again:
        assert again.bootstrap == before
        create(before, "after-stop")
    broker.start()
    assert "after-stop" in Admin(before).list_topics(WAIT_S_MAX)


def test_a_second_broker_on_the_directory_is_refused_and_names_the_first(
    broker: EmbeddedBroker,
) -> None:
    second = EmbeddedBroker(broker.data_dir)
    with pytest.raises(EnvironmentProblem, match=f"process {broker.pid}") as caught:
        second.start()
    assert caught.value.exit_code == 3
    assert answers(broker.bootstrap, timeout_s=WAIT_S_MAX)


def test_a_paused_broker_can_be_stopped(broker: EmbeddedBroker) -> None:
    os.kill(broker.pid, signal.SIGSTOP)
    pid = broker.pid
    broker.stop()
    assert not psutil.pid_exists(pid)
    broker.start()


def test_topics_are_not_created_by_mentioning_them(broker: EmbeddedBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert admin.list_topics("misspelt", timeout=WAIT_S_MAX).topics["misspelt"].error is not None
    assert "misspelt" not in admin.list_topics(timeout=WAIT_S_MAX).topics


def test_a_record_of_16_mib_passes(broker: EmbeddedBroker) -> None:
    create(broker.bootstrap, "large")
    value = os.urandom(16 * 2**20)
    write(broker.bootstrap, "large", [value])
    assert read(broker.bootstrap, "large", 1) == [value]


def test_the_broker_dies_with_its_parent(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys, threading\n"
        "from slackwater.machine.broker import EmbeddedBroker\n"
        "broker = EmbeddedBroker(pathlib.Path(sys.argv[1]))\n"
        # From a thread that ends: the broker must outlive the thread, but not the process.
        "thread = threading.Thread(target=broker.start)\n"
        "thread.start(); thread.join()\n"
        "print(broker.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        ports = (tmp_path / "ports.json").read_text()
        assert psutil.Process(pid).name() == "java", ports
        parent.kill()
    eventually(lambda: _is_gone(pid), "the broker has died with its parent")
    with EmbeddedBroker(tmp_path) as successor:  # no lock is left behind
        assert answers(successor.bootstrap, timeout_s=WAIT_S_MAX)


def _is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_directory_is_prepared_as_by_kafkas_own_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Identities and times differ, the features do not; a broker runs on both."""
    assert features_file().exists(), "make setup keeps them"
    prepared, nothing = {}, tmp_path / "nothing"
    for name in ("by us", "by the tool"):
        folder = tmp_path / name
        with EmbeddedBroker(folder) as broker:
            create(broker.bootstrap, "t")
            write(broker.bootstrap, "t", [b"x"])
            assert read(broker.bootstrap, "t", 1) == [b"x"]
        logs = folder / "logs"
        assert [at for at in logs.iterdir() if at.stat().st_mode & 0o77] == []
        lines = (logs / "meta.properties").read_text().splitlines()
        identity = {line.partition("=")[0] for line in lines if not line.startswith("#")}
        prepared[name] = identity, features_of((logs / FEATURES).read_bytes())
        monkeypatch.setattr("slackwater.machine.broker.features_file", nothing.absolute)
    assert prepared["by us"] == prepared["by the tool"]
    assert len(prepared["by us"][1]) > 3


def features_of(checkpoint: bytes) -> dict[bytes, bytes]:
    """Return the level of each feature: two bytes behind its name, in FeatureLevelRecords."""
    found = re.finditer(rb"\x01\x0c\x00.([a-z.]+)(..)\x00", checkpoint, re.DOTALL)
    return {one[1]: one[2] for one in found}
