"""Requests pushed by senders: stored data, responses, and the state after a restart."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.proxy_world import SPEC, S, World
from tests.support.reader_that_dies import RAISING, WORD, install

from slackwater.model.deployment import HttpInputSpec, StreamSpec
from slackwater.proxy import remembered
from slackwater.proxy.http.bodies import JSON, reader_for
from slackwater.proxy.pushed import PushedInput
from slackwater.proxy.requests import Outcome, Pushed, RequestQueue
from slackwater.proxy.shell import InputContext, turn
from slackwater.proxy.spool import BYTES_DEFAULT_MAX
from slackwater.runtime.logs.transport import read_to_end

POSTED = replace(SPEC, http=HttpInputSpec(), expect_every_us=10 * S)


class PushWorld(World):
    """A stream whose input are requests."""

    def __init__(self, folder: Path, spec: StreamSpec = POSTED) -> None:
        super().__init__(folder, spec=spec)
        self.queue = RequestQueue(lambda: None)

    def proxy(self, spool_bytes_max: int = BYTES_DEFAULT_MAX) -> PushedInput:
        made = PushedInput(self.context(spool_bytes_max=spool_bytes_max), self.queue)
        made.begin()
        return made

    @property
    def context_now(self) -> InputContext:
        return self.contexts[-1]

    def put(self, body: Any, key: str | None = None) -> Future[Outcome]:
        reader = reader_for(self.spec, JSON, self.now_us)
        assert reader is not None
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        pushed = Pushed(raw, reader, key, self.now_us)
        refused = self.queue.put(pushed)
        if refused is not None:
            pushed.answer.set_result(refused)
        return pushed.answer

    def post(self, proxy: PushedInput, body: Any, key: str | None = None) -> Outcome:
        answer = self.put(body, key)
        turn(self.context_now, proxy, self.now_us)
        return answer.result(timeout=0)

    def quarantined(self) -> list[dict[str, Any]]:
        log = (f"sw.quarantine.{self.spec.name}", 0)
        return [json.loads(record.value) for record in read_to_end(self.broker, log)]


def reading(second: float, value: Any = 1.0) -> dict[str, Any]:
    return {"node": "n", "ts": second, "t": value}


def test_a_request_is_answered_when_its_readings_are_spooled(tmp_path: Path) -> None:
    world = PushWorld(tmp_path)
    proxy = world.proxy()
    assert world.post(proxy, [reading(1000), reading(1001)]) == Outcome(200, {"accepted": 2})
    world.run(proxy, 1)
    assert [r[1] for r in world.readings()] == [1000, 1001]


def test_requests_that_wait_together_are_stored_together(tmp_path: Path) -> None:
    world = PushWorld(tmp_path)
    proxy = world.proxy()
    answers = [world.put(reading(1000 + i)) for i in range(10)]
    turn(world.context_now, proxy, world.now_us)
    assert all(answer.result(timeout=0).status == 200 for answer in answers)
    records = [record for _, record in world.raw() if record.readings]
    assert [record.readings for record in records] == [10]


def test_a_repeated_request_counts_once_and_has_the_same_counts(tmp_path: Path) -> None:
    world = PushWorld(tmp_path)
    proxy = world.proxy()
    body = [reading(1000), reading(1001, "warm")]
    first = world.post(proxy, body, "k-1")
    again = world.post(proxy, body, "k-1")
    assert (first.counts, first.repeated) == ({"accepted": 1, "malformed": 1}, False)
    assert (again.counts, again.repeated) == (first.counts, True)
    world.run(proxy, 1)
    assert len(world.readings()) == 1
    assert len(world.quarantined()) == 1


def test_two_requests_of_one_key_that_wait_together_count_once(tmp_path: Path) -> None:
    world = PushWorld(tmp_path)
    proxy = world.proxy()
    answers = [world.put(reading(1000), "k") for _ in range(2)]
    turn(world.context_now, proxy, world.now_us)
    assert [answer.result(timeout=0).repeated for answer in answers] == [False, True]
    world.run(proxy, 1)
    assert len(world.readings()) == 1


def test_a_key_is_found_after_a_restart(tmp_path: Path) -> None:
    """The process is killed between the commit and the response."""
    world = PushWorld(tmp_path)
    proxy = world.proxy()
    world.post(proxy, reading(1000), "k")
    world.context_now.spool.close()

    again = world.proxy()
    assert world.post(again, reading(1000), "k") == Outcome(200, {"accepted": 1}, repeated=True)
    world.run(again, 1)
    assert len(world.readings()) == 1


def test_a_key_with_another_body_is_an_error(tmp_path: Path) -> None:
    world = PushWorld(tmp_path)
    proxy = world.proxy()
    world.post(proxy, reading(1000), "k")
    assert world.post(proxy, reading(1001), "k").status == 422


def test_a_body_without_a_usable_reading_is_refused_as_a_whole(tmp_path: Path) -> None:
    world = PushWorld(tmp_path)
    proxy = world.proxy()
    answer = world.post(proxy, [reading(1000, "warm"), {"ts": 1001}], "k")
    assert answer.status == 400
    assert answer.errors == (
        {"index": 0, "reason": "malformed", "detail": "field t"},
        {"index": 1, "reason": "malformed", "detail": "key"},
    )
    world.run(proxy, 1)
    assert not world.quarantined()
    # The sender repairs the body and uses the key again.
    assert world.post(proxy, [reading(1000), reading(1001)], "k").status == 200


@pytest.mark.parametrize("body", [b"", b"[]", b"[1", b'[{"ts": 1}', b"\xff[", b"[" * 100_000])
def test_a_body_that_holds_nothing_is_refused(tmp_path: Path, body: bytes) -> None:
    world = PushWorld(tmp_path)
    assert world.post(world.proxy(), body).status == 400


def test_what_is_late_or_malformed_is_quarantined_under_its_index(tmp_path: Path) -> None:
    world = PushWorld(tmp_path)
    proxy = world.proxy()
    world.post(proxy, reading(999))
    answer = world.post(proxy, [reading(1000), reading(995), reading(1007, "warm")])
    assert answer.counts == {"accepted": 1, "malformed": 1, "late": 1}
    world.run(proxy, 1)
    found = {(entry["position"], entry["reason"]) for entry in world.quarantined()}
    assert found == {("request:2:1", "late"), ("request:2:2", "malformed")}
    assert world.context_now.spool.bytes_held == 0


def test_refused_readings_of_one_request_after_another_are_quarantined(tmp_path: Path) -> None:
    world = PushWorld(tmp_path)
    proxy = world.proxy()
    for i in range(3):
        world.post(proxy, [reading(1000 + i), reading(1001, "warm"), reading(1002, "warm")])
        world.run(proxy, 1)
        assert world.context_now.spool.bytes_held == 0
        assert len(world.quarantined()) == 2 * (i + 1)


def test_a_refused_reading_is_as_durable_as_an_accepted_one(tmp_path: Path) -> None:
    """The proxy is killed after the response, before any data of the request is in Kafka."""
    world = PushWorld(tmp_path)
    proxy = world.proxy()
    writer = world.context_now.writer
    world.context_now.quarantine._writer = _Lost()  # type: ignore[assignment]
    world.post(proxy, [reading(1000), reading(1001, "warm")])
    turn(world.context_now, proxy, world.now_us)
    assert writer is not None
    world.context_now.spool.close()
    assert not world.quarantined()

    again = world.proxy()
    assert again.detail()["malformed"] == 1
    world.run(again, 1)
    assert [entry["position"] for entry in world.quarantined()] == ["request:1:1"]


def test_a_full_spool_pushes_back_and_changes_nothing(tmp_path: Path) -> None:
    world = PushWorld(tmp_path)
    proxy = world.proxy(spool_bytes_max=400)
    many = [reading(1000 + i) for i in range(1000)]
    answer = world.post(proxy, many, "k")
    assert (answer.status, answer.retry_s) == (429, 5)
    # Readings that were not stored make nothing late.
    assert world.post(proxy, reading(1000), "k").counts == {"accepted": 1}
    world.run(proxy, 1)
    assert len(world.readings()) == 1


def test_a_repetition_of_what_is_not_stored_is_pushed_back_too(tmp_path: Path) -> None:
    """Both wait together, so the second one's key is found before it is stored."""
    world = PushWorld(tmp_path)
    proxy = world.proxy(spool_bytes_max=400)
    assert world.post(proxy, reading(1000), "stored").status == 200
    many = [reading(1000 + i) for i in range(1000)]
    answers = [world.put(many, "k"), world.put(many, "k"), world.put(reading(1000), "stored")]
    turn(world.context_now, proxy, world.now_us)
    assert [answer.result(timeout=0).status for answer in answers] == [429, 429, 200]


def test_a_full_disk_pushes_back_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = PushWorld(tmp_path)
    proxy = world.proxy()

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(remembered.Remembered, "add", full)
        assert world.post(proxy, reading(1009), "k").status == 429
    assert world.post(proxy, reading(1000), "k").counts == {"accepted": 1}
    world.run(proxy, 1)
    assert [r[1] for r in world.readings()] == [1000]


def test_a_closed_stream_takes_no_requests(tmp_path: Path) -> None:
    world = PushWorld(tmp_path)
    assert world.put(reading(1000)).result(timeout=0).status == 503
    proxy = world.proxy()
    waiting = world.put(reading(1000))
    proxy.close()
    assert waiting.result(timeout=0).status == 503
    assert world.put(reading(1000)).result(timeout=0).status == 503


def test_keys_beyond_their_number_and_time_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "KEYS_MAX", 3)
    world = PushWorld(tmp_path)
    proxy = world.proxy()
    for i in range(5):
        world.post(proxy, reading(1000 + i), f"k-{i}")
    find = world.context_now.spool.remembered.find
    assert [find(f"k-{i}") is not None for i in range(5)] == [False, False, True, True, True]
    world.now_us += remembered.KEYS_US_MAX + S
    world.post(proxy, reading(1010), "k-5")
    assert [find(f"k-{i}") is not None for i in range(6)] == [False] * 5 + [True]


def test_a_sender_cannot_promise_for_a_stream(tmp_path: Path) -> None:
    world = PushWorld(tmp_path)
    proxy = world.proxy()
    answer = world.post(proxy, [{"boundary": 5000}, reading(1000)])
    assert answer.counts == {"accepted": 1, "malformed": 1}


def test_a_body_that_raises_or_ends_its_reader_is_refused_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by its digest at the next start, and then read in a child process."""
    monkeypatch.setenv("PYTHONPATH", install(tmp_path / "site") + os.pathsep + SERVICES)
    body = json.dumps([{"node": WORD.decode(), "ts": 1000, "t": 1}])
    script = tmp_path / "post.py"
    script.write_text(POST)
    command = [sys.executable, str(script), str(tmp_path), body]
    ended = subprocess.run(command, check=False, capture_output=True, cwd=ROOT)
    assert ended.returncode == -signal.SIGABRT
    for _ in range(2):
        again = subprocess.run(command, check=True, capture_output=True, cwd=ROOT, text=True)
        assert json.loads(again.stdout) == [[400, "the body cannot be read: it crashes the parser"]]
    raising = json.dumps([{"node": RAISING.decode(), "ts": 1000, "t": 1}])
    command[-1:] = [raising, json.dumps(reading(1000))]
    both = subprocess.run(command, check=True, capture_output=True, cwd=ROOT, text=True)
    assert [status for status, _ in json.loads(both.stdout)] == [400, 200]


ROOT = Path(__file__).parents[3]
SERVICES = str(ROOT / "services")
POST = """
if __name__ == "__main__":  # the child process, which reads this too, needs none of it
    import json, sys
    from pathlib import Path
    from slackwater.formats.dead_letters import DeadLetters, Faults
    from tests.unit.proxy.test_pushed import PushWorld

    world = PushWorld(Path(sys.argv[1]))
    faults = Faults.open(Path(sys.argv[1]), "room")
    context = world.context
    def guarded(*args, **options):
        made = context(*args, **options)
        made.dead_letters = DeadLetters.open(Path(sys.argv[1]), "room", faults)
        return made
    world.context = guarded
    faults.watch()
    proxy = world.proxy()
    found = [world.post(proxy, body.encode()) for body in sys.argv[2:]]
    print(json.dumps([[outcome.status, outcome.reason] for outcome in found]))
"""


class _Lost:
    """A writer whose records never arrive."""

    def append(self, *_: object) -> None:
        return
