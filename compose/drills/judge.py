"""Compares the results of ``climate`` with the source logs, while or after they are answered.

    python judge.py [--until-in S] [--since-in S] [--late-max S] [--missing STREAM]

The judge follows the three result topics from their beginning until the windows that end within S
seconds (``--until-in``) have their exact answers. Then each window must have exactly one, each
tentative answer must have been undone, and each exact answer must count the readings that the
source logs hold for it. Each reading of a stream's topic must be in the source logs or in
quarantine, once.

``--since-in S``: the windows that are due later than S seconds from now are *watched*.
``--late-max S``: the first answer of a watched window is committed at most S seconds after it is
due. ``--missing STREAM``: at least one first answer of a watched window is tentative and lacks this
stream, and none lacks another one.

The exit code is 1 if one of these does not hold, and a sentence tells which.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

import slackwater
from slackwater.codec import decode_source
from slackwater.codec.results import parse_time
from slackwater.deployment.fragments import sources_of
from slackwater.deployment.parse import load_deployment
from slackwater.model.names import Names
from slackwater.model.records import Kind, SourcePosition
from slackwater.protocols.dpc.sunion.cursor import SourceCursor
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import partition_count
from slackwater.runtime.logs.transport import extents, read_to_end

QUERY = "climate"
WITHIN_S = 180
READ_WITHIN_S = 20


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--until-in", type=float, default=3.0)
    parser.add_argument("--since-in", type=float)
    parser.add_argument("--late-max", type=float)
    parser.add_argument("--missing")
    parser.add_argument("--quiet", action="store_true")
    return parser.parse_args()


def fail(sentence: str) -> None:
    print(f"judge: {sentence}")
    sys.exit(1)


class Judge:
    """The results that have been read."""

    def __init__(self, slide_us: int, since_us: float) -> None:
        self.slide_us, self.since_us = slide_us, since_us
        self.stable: list[int] = []
        self.counts: Counter[tuple[int, str]] = Counter()
        self.standing: set[int] = set()
        self.undone = self.tentative = self.answers = 0
        self.missing: Counter[str] = Counter()
        self.latest_s, self.answered_to = 0.0, -1

    def take(self, record: dict) -> None:
        """The next record in order."""
        if record["kind"] == "undo":
            first, last = parse_time(record["undo_from"]), parse_time(record["undo_to"])
            revoked = {window for window in self.standing if first <= window <= last}
            self.standing -= revoked
            self.undone += len(revoked)
        elif record["kind"] == "stable":
            fields = record["fields"]["temperature"]
            self.counts[parse_time(record["window_start"]), record["key"]] += fields["count"]
        elif record["kind"] == "boundary":
            self._boundary(record)

    def _boundary(self, record: dict) -> None:
        start = parse_time(record["window_start"])
        windows = range(start, start + record["windows"] * self.slide_us, self.slide_us)
        due_us = parse_time(record["due_at"])
        if start > self.answered_to:
            self.answered_to = windows[-1]
            if due_us >= self.since_us:
                self.answers += 1
                self.latest_s = max(self.latest_s, time.time() - due_us / 1e6)
        if record["label"] == "stable":
            if self.standing & set(windows):
                fail(f"window {record['window_start']} is exact, but its tentative answer stands")
            self.stable += windows
            return
        self.standing |= set(windows)
        if due_us >= self.since_us:
            self.tentative += 1
            self.missing.update(record["missing"])


def readings(
    transport: KafkaTransport, deployment, partitions: dict[str, int]
) -> tuple[Counter[tuple[int, str]], Counter[str]]:
    """Count the readings of each window and key, and of each stream, in the source logs."""
    query = deployment.queries[QUERY]
    counts: Counter[tuple[int, str]] = Counter()
    taken: Counter[str] = Counter()
    size_us, slide_us = query.window.size_us, query.window.slide_us
    sources = sources_of(deployment, partitions)
    for stream, source in ((stream, s) for stream, names in sources.items() for s in names):
        # The readers' acceptance rule decides which of several repeated records counts (rule-10).
        cursor = SourceCursor(SourcePosition(0, 0, 0, -(2**62)), strict=True)
        for raw in read_to_end(transport, (Names().source(source), 0)):
            record = decode_source(raw.value, source)
            if not cursor.offer(raw.offset, record) or record.kind != Kind.INSERTION:
                continue
            columns = record.columns.load()
            taken[stream] += len(columns.stimes)
            known = ~np.isnan(columns.values[columns.fields.index("temperature")])
            newest = columns.stimes[known] // slide_us * slide_us
            keys = columns.key_index[known]
            for back in range(0, size_us, slide_us):
                pairs, n = np.unique(np.stack([newest - back, keys]), axis=1, return_counts=True)
                for start, key, count in zip(*pairs.tolist(), n.tolist(), strict=True):
                    counts[start, columns.keys[key]] += count
    return counts, taken


def written(transport: KafkaTransport, deployment, partitions: dict[str, int]) -> dict[str, int]:
    """Count the readings in the topics of the streams."""
    return {
        stream: sum(
            end - begin
            for begin, end in extents(
                transport, [(deployment.streams[stream].topic.name, p) for p in range(n)]
            ).values()
        )
        for stream, n in partitions.items()
    }


def isolated_records(transport: KafkaTransport, stream: str) -> int:
    """Count the readings in quarantine, where an entry may occur twice."""
    return len({raw.key for raw in read_to_end(transport, (Names().quarantine(stream), 0))})


def account(transport: KafkaTransport, deployment) -> Counter[tuple[int, str]]:
    """Return what each window should count; each written reading must have exactly one place.

    What was written last is read a moment later.
    """
    partitions = {
        name: partition_count(transport.bootstrap, stream.topic.name)
        for name, stream in deployment.streams.items()
        if stream.topic is not None
    }
    before = written(transport, deployment, partitions)
    give_up = time.monotonic() + READ_WITHIN_S
    while True:
        counts, taken = readings(transport, deployment, partitions)
        spacing = {stream: isolated_records(transport, stream) for stream in before}
        if all(there <= taken[name] + spacing[name] for name, there in before.items()):
            break
        if time.monotonic() > give_up:
            fail(f"not all of {before} are in the source logs {taken} or in quarantine {spacing}")
    now = written(transport, deployment, partitions)
    for stream, there in before.items():
        found = f"{taken[stream]} readings in the source log, {spacing[stream]} in quarantine"
        if taken[stream] + spacing[stream] > now[stream]:
            fail(f"{stream}: {found}, of {now[stream]} written")
        if there:
            print(f"judge: {stream}: {found}, of {there} to {now[stream]} written")
    return counts


def main() -> None:
    """Read the results, and compare them."""
    options = arguments()
    bootstrap = os.environ["SLACKWATER_BOOTSTRAP"]
    deployment = load_deployment(Path("/etc/slackwater/deployment.yaml"))
    now_s = time.time()
    since_us = math.inf if options.since_in is None else (now_s + options.since_in) * 1e6
    judge = Judge(deployment.queries[QUERY].window.slide_us, since_us)
    until_us = int((now_s + options.until_in) * 1e6)
    give_up = time.monotonic() + options.until_in + WITHIN_S
    follow = slackwater.Client(bootstrap).follow(QUERY)
    for record in follow:
        judge.take(record)
        exact = record["kind"] == "boundary" and record["label"] == "stable"
        if exact and parse_time(record["window_end"]) >= until_us:
            break
        if time.monotonic() > give_up:
            fail(f"no exact answers up to now within {WITHIN_S} s")
    if options.quiet:
        return
    stable = judge.stable
    if stable != list(range(stable[0], stable[-1] + 1, judge.slide_us)):
        fail("a window is missing, or there twice")
    if follow.repeats or follow.cuts:
        fail(f"{follow.repeats} records twice, {len(follow.cuts)} runs missing")
    wanted = account(KafkaTransport(bootstrap), deployment)
    wrong = {
        at: (judge.counts[at], wanted[at])
        for at in judge.counts.keys() | wanted.keys()
        if stable[0] <= at[0] <= stable[-1] and judge.counts[at] != wanted[at]
    }
    if wrong:
        fail(f"{len(wrong)} rows are wrong, as {next(iter(wrong.items()))} (answered, in the logs)")
    if options.late_max is not None and not 0 < judge.latest_s <= options.late_max:
        fail(f"an answer of {judge.answers} came {judge.latest_s:.2f} s after its time")
    if options.missing and set(judge.missing) != {options.missing}:
        fail(f"missing were {dict(judge.missing)}, not {options.missing}")
    print(
        f"judge: {len(stable)} windows exact, once each, {sum(judge.counts.values())} counts as in"
        f" the source logs; {judge.undone} undone in all"
    )
    if judge.answers:
        print(
            f"judge: in this drill {judge.answers} first answers, {judge.tentative} tentative, the"
            f" latest {judge.latest_s:.2f} s after its time"
        )


main()
