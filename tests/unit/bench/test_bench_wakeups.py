"""The bench counts wake-ups like the kernel."""

from __future__ import annotations

import os
import threading

import psutil
from bench.wakeups import Wakeups, kind_of
from tests.support.waiting import WAIT_S_MAX


def test_each_sleep_of_each_thread_is_a_wake_up() -> None:
    woken, sleeps = Wakeups(), 200
    me = [psutil.Process(os.getpid())]
    woken.look(me, 10.0)
    never, slept, looked = threading.Event(), threading.Event(), threading.Event()

    def sleep() -> None:
        for _ in range(sleeps):
            never.wait(0.001)

    def other() -> None:
        sleep()
        slept.set()
        looked.wait(WAIT_S_MAX)

    began = threading.Thread(target=other)
    began.start()
    sleep()
    assert slept.wait(WAIT_S_MAX)
    woken.look(me, 12.0)
    looked.set()
    began.join()
    (rate,) = woken.per_s().values()
    assert 2 * rate >= 1.5 * sleeps, "a thread started meanwhile has its full count"


def test_processes_are_distinguished_by_their_command() -> None:
    assert kind_of(["python", "-m", "slackwater.proxy", "s1"]) == "proxy"
    assert kind_of(["java", "-cp", "a:b", "kafka.Kafka", "server.properties"]) == "broker"
    assert kind_of(["python", "-m", "slackwater.cli.app", "up"]) == "others"
