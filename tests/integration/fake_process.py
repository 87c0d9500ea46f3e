"""Stands for every kind of process: waits in the registry, says that it is ready, stops on demand.

Run as the ``python`` of a stack: ``fake_process.py -m MODULE NAME --bootstrap B ...``.
"""

import argparse
import json
import os
import sys

from slackwater.model.errors import EnvironmentProblem
from slackwater.runtime.entry import Context, run
from slackwater.runtime.heartbeats import HeartbeatSender
from slackwater.runtime.registry import Registry


def main(context: Context) -> None:
    told = json.loads(os.environ.get("FAKE", "{}")).get(context.process, "")
    if told == "fail":
        raise EnvironmentProblem("no room on the disk for the spool")
    sender = HeartbeatSender(context.bootstrap, context.process).start()
    registry = Registry(context.transport())
    if context.kind == "proxy":
        sender.update(ready=told != "slow")
    else:
        query = registry.wait_for_query(_query(context), 60)
        sender.update(ready=True, detail={"e0": query.e0_us, "w": query.w_us})
    clock = registry.wait_for_clock(60)
    sender.update(detail={"placement": context.placement, "event_at_0": clock.event(0) or 0})
    context.stopping.wait()
    sender.stop()


def _query(context: Context) -> str:
    if context.kind == "aggregator":
        fragments: str = context.arguments.fragments
        return fragments.partition(",")[0].partition(".")[0]
    return context.name.partition(".")[0]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fragments")


if __name__ == "__main__":
    kind = {"slackwater_spark.app": "aggregator"}.get(sys.argv[2], sys.argv[2].split(".")[-1])
    run(kind, main, sys.argv[3:], add_arguments)
