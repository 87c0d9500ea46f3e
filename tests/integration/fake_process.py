"""Stands for every kind of process: waits for the registry, reports ready, stops on demand.

Run as the ``python`` of a stack: ``fake_process.py -m MODULE NAME... --bootstrap B ...``.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from functools import partial

from slackwater.model.errors import EnvironmentProblem
from slackwater.model.names import Names
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.entry import ProcessContext, exit_code_of, run
from slackwater.runtime.service.heartbeats import HeartbeatSender
from slackwater.runtime.service.log import named
from slackwater.runtime.service.parts import (
    ADD,
    FAILED_AT,
    FAILED_CODE,
    FAILURES,
    REMOVE,
    PartBeat,
    start_following,
)
from slackwater.runtime.service.registry import Registry


def main(context: ProcessContext) -> None:
    if context.kind == "proxy":
        _proxy(context)
        return
    if context.kind == "host":
        _host(context)
        return
    sender = HeartbeatSender(context.cluster, context.process, names=Names()).start()
    registry = Registry(context.transport())
    if not context.arguments.fragments:  # they come with commands
        sender.update(ready=True)
        context.stopping.wait()
        return
    query = registry.wait_for_query(_query(context), 60)
    sender.update(ready=True, detail={"e0": query.e0_us, "w": query.w_us})
    clock = registry.wait_for_clock(60)
    sender.update(detail={"event_at_0": clock.event(0) or 0})
    context.stopping.wait()
    sender.stop()


def _host(context: ProcessContext) -> None:
    """One heartbeat for each fragment; a command is confirmed by printing it."""
    sender = HeartbeatSender(context.cluster, context.process, names=Names(), carries=True).start()
    beats: dict[str, PartBeat] = {}
    registry = Registry(context.transport())

    def add(part: str) -> None:
        beats[part] = PartBeat(sender, part)
        registry.wait_for_query(part.partition("/")[2].partition(".")[0], 60)
        beats[part].update(ready=True)

    def kill(part: str) -> None:
        beats[part].begin_again({"killed": 1})
        beats[part].update(ready=True)

    def command(verb: str, part: str) -> Callable[[], None] | None:
        acts = {ADD: add, REMOVE: lambda part: beats.pop(part).stop(), "kill": kill}
        return partial(acts[verb], part)

    for part in filter(None, context.arguments.fragments.split(",")):
        add(part)
    start_following(sys.stdin.buffer, command)
    context.stopping.wait()


def _proxy(context: ProcessContext) -> None:
    """One heartbeat for each stream, as by the real proxy."""
    reported = json.loads(os.environ.get("FAKE", "{}"))
    senders = []
    for part in (f"proxy/{stream}" for stream in context.names):
        senders.append(HeartbeatSender(context.cluster, part, names=Names()).start())
        if reported.get(part) == "fail":
            with named(part):
                code = exit_code_of(EnvironmentProblem("no room on the disk for the spool"))
            at = SystemClock().now_us()
            senders[-1].update(detail={FAILURES: 2, FAILED_AT: at, FAILED_CODE: code})
        else:
            senders[-1].update(ready=reported.get(part) != "slow")
    context.stopping.wait()
    for sender in senders:
        sender.stop()


def _query(context: ProcessContext) -> str:
    if context.kind == "aggregator":
        fragments: str = context.arguments.fragments
        return fragments.partition(",")[0].partition(".")[0]
    raise AssertionError(f"nobody asks {context.kind}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fragments")
    parser.add_argument("--commands", action="store_true")
    parser.add_argument("--short-run", action="store_true")


if __name__ == "__main__":
    kind = {"slackwater_spark.app": "aggregator"}.get(sys.argv[2], sys.argv[2].split(".")[-1])
    run(kind, main, sys.argv[3:], add_arguments, serves="STREAM")
