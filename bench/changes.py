"""Queries that are applied, paused, resumed and deleted while `slackwater up` runs under load.

Four topics get 50,000 readings/s in all, as columns. One query with windows of a second runs all
the time. Others, with a ``where`` of their own, are applied and deleted one after the other; the
last one is paused for a minute and resumed.

``first answer``: from the controller's response to the first stable answer of the new query.
``late``: the same less the time until that window was due: the target is 3 s.
``gone``: from the response to a delete until no process reports a fragment of the query.
``replaced``: from the response to a change of the first query until its new generation answers.
The latency of the first query is that of its first answers, after their normal time.
A window is wrong if it does not count exactly a second's readings.

The commands are processes, as for a user: in this process they would delay the sending of the
readings and the reading of the answers, by more than what is measured.

Run with ``python -m bench.changes [--rate 50000] [--times 5] [--warm 20]``; prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Final

from bench.live import QUERY, STREAMS, LiveAnswers, Up
from confluent_kafka import Producer

from slackwater.model.names import generation_name
from slackwater.protocols.flux.pair import ANSWERS
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.service.heartbeat_view import answering
from slackwater.runtime.service.heartbeats import HeartbeatListener

STREAM: Final = (
    "  {name}: {{topic: {{name: in-{name}, format: json-columns}}, key: {{field: k}},"
    " time: {{field: t, unit: us}}, fields: [v], expect_every: 1s}}"
)
ADDED: Final = (
    "  {name}: {{from: [{sources}], where: v > {above}, window: {{size: 1s}},"
    " aggregate: [count], bound: 2s}}\n"
)
TICK_US: Final = 20_000
WARM_S: Final = 20.0
BEFORE_S: Final = 60.0
PAUSE_S: Final = 60.0
WAIT_S_MAX: Final = 120.0


class ColumnFeeder(threading.Thread):
    """Sends each stream a message of columns every 20 ms, stamped evenly over that time."""

    def __init__(self, bootstrap: str, per_s: int) -> None:
        super().__init__(daemon=True)
        self._count = per_s * TICK_US // 1_000_000 // len(STREAMS)
        self._ending = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 1, "enable.idempotence": True}
        )

    @property
    def each_second(self) -> int:
        """Readings of all streams in each second."""
        return self._count * len(STREAMS) * 1_000_000 // TICK_US

    def run(self) -> None:
        """Run until stopped."""
        tick = time.time_ns() // 1_000 // TICK_US + 1
        values = [1.5] * self._count
        while True:
            if self._ending.wait(max(0.0, (tick + 1) * TICK_US / 1e6 - time.time())):
                return
            times = [tick * TICK_US + n * TICK_US // self._count for n in range(self._count)]
            message = json.dumps({"k": f"k{tick % 10}", "t": times, "v": values})
            for name in STREAMS:
                self._producer.produce(f"in-{name}", message)
            self._producer.poll(0)
            tick += 1

    def stop(self) -> None:
        """Stop, and send the remaining readings."""
        self._ending.set()
        self.join()
        self._producer.flush()


class Bench:
    """One deployment under load."""

    def __init__(self, folder: Path, rate: int, replicas: int) -> None:
        self._up = Up(folder, replicas)
        self._file = folder / "deployment.yaml"
        text = self._file.read_text()
        head, tail = text.index("streams:"), text.index("queries:")
        streams = "\n".join(STREAM.format(name=name) for name in STREAMS)
        self._text = f"{text[:head]}streams:\n{streams}\n{text[tail:]}"
        self._file.write_text(self._text)
        self._up.start()
        self._up.wait_ready()
        self._data = folder / "data"
        self.feeder = ColumnFeeder(self._up.bootstrap, rate)
        self.feeder.start()
        self.others = LiveAnswers(self._up.bootstrap)
        self.others.start()
        self._listener = HeartbeatListener(KafkaTransport(self._up.bootstrap)).start()
        self.wrong = 0

    def apply(self, number: int) -> tuple[LiveAnswers, float]:
        """Apply a query; return its answers and the time of its acceptance (s)."""
        name = f"added-{number}"
        self._file.write_text(
            self._text + ADDED.format(name=name, sources=", ".join(STREAMS), above=number / 1e6)
        )
        _, accepted_s = self._query("apply", str(self._file), "--query", name)
        answers = LiveAnswers(self._up.bootstrap, query=name)
        answers.start()
        wait(lambda: bool(answers.stable), f"{name} answers")
        return answers, accepted_s

    def _query(self, *words: str) -> tuple[str, float]:
        """Run a command on a query; return the controller's response, and its time (s)."""
        command = [sys.executable, "-u", "-m", "slackwater.cli.app", "query", *words]
        command += ["--data-dir", str(self._data)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            response = process.stdout.readline()
            accepted_s = time.time()
            process.stdout.read()  # the rest, so that the command can end
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} exited with {process.returncode}")
        return response, accepted_s

    def delete(self, number: int) -> float:
        """Delete a query; return the time until its fragments are gone (s)."""
        _, accepted_s = self._query("delete", f"added-{number}")
        names = [f"orderer/added-{number}.0.a", f"root/added-{number}.0"]
        wait(lambda: not any(map(self._listener.ready, names)), "it is gone")
        return time.time() - accepted_s

    def change(self, number: int) -> float:
        """Change the first query; return the time until its new generation has answered (s)."""
        text = self._text.replace("    window:", f"    where: v > {number / 1e6}\n    window:", 1)
        assert text != self._text, "the file has another form"
        self._file.write_text(text)
        response, accepted_s = self._query("apply", str(self._file), "--query", QUERY)
        assert f"query {QUERY} is changed: generation {number} is accepted" in response
        generation = generation_name(QUERY, number)

        def answers() -> bool:
            beat = answering(self._listener.latest, generation, 0)
            return beat is not None and beat.ready and beat.detail.get(ANSWERS, 1) > 0

        wait(answers, f"{generation} answers")
        took_s = time.time() - accepted_s
        count = len(self.others.stable)
        wait(lambda: len(self.others.stable) >= count + 5, "five more windows")
        return took_s

    def pause(self, number: int, for_s: float) -> float:
        """Pause and resume; return the time from then to answers within a second (s)."""
        name = f"added-{number}"
        self._query("pause", name)
        time.sleep(for_s)
        answers = LiveAnswers(self._up.bootstrap, query=name)
        answers.start()
        _, begun_s = self._query("resume", name)
        wait(
            lambda: (
                bool(answers.stable)
                and answers.stable[-1].due_s > begun_s
                and answers.stable[-1].late_s < 1
            ),
            f"{name} is in time again",
        )
        took_s = time.time() - begun_s
        self.check(answers)
        return took_s

    def check(self, answers: LiveAnswers, skip: int = 0) -> None:
        """Count the wrong windows."""
        wanted = self.feeder.each_second
        found = [a.counted for a in answers.stable[skip:]]
        wrong = [counted for counted in found if counted != wanted]
        due = [a.due_s for a in answers.stable]
        gaps = sum(b - a > 1.5 for a, b in pairwise(due))
        doubled = len(due) - len({*due})
        if wrong or gaps or doubled:
            print(f"wrong: {wrong[:5]} of {wanted}, {gaps} gaps, {doubled} doubled")
        self.wrong += len(wrong) + gaps + doubled

    def stop(self) -> None:
        """Stop everything."""
        self.feeder.stop()
        self._listener.stop()
        self._up.stop()


def wait(holds: Callable[[], bool], what: str) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + WAIT_S_MAX
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit(f"in {WAIT_S_MAX:g} s not: {what}")
        time.sleep(0.02)


def percentiles(values: list[float]) -> str:
    """Median, 99th percentile and maximum, in ms."""
    ordered = sorted(values)
    at = [ordered[len(ordered) // 2], ordered[int(0.99 * (len(ordered) - 1))], ordered[-1]]
    return " / ".join(f"{1000 * value:.0f}" for value in at)


def main() -> int:
    """Measure and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=50_000, help="readings/s of all streams")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument(
        "--warm", type=float, default=WARM_S, help="s of readings in the logs before the changes"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slackwater-changes-") as made:
        bench = Bench(Path(made), options.rate, options.replicas)
        try:
            run(bench, options.times, options.warm)
        finally:
            bench.stop()
    return int(bench.wrong > 0)


def run(bench: Bench, times: int, warm_s: float) -> None:
    """All phases."""
    others = bench.others
    wait(lambda: len(others.stable) > 3, "the first query answers")
    time.sleep(warm_s)
    begun = len(others.first_late_s)
    time.sleep(BEFORE_S)
    before = others.first_late_s[begun:]
    begun = len(others.first_late_s)
    print(f"{bench.feeder.each_second} readings/s\n")
    print("| applied | first answer s | late s | gone s |")
    print("|---|---|---|---|")
    for number in range(times):
        answers, accepted_s = bench.apply(number)
        first = answers.stable[0]
        late_s = first.seen_s - max(first.due_s, accepted_s)
        time.sleep(5)
        bench.check(answers)
        answers.end()
        gone_s = bench.delete(number)
        print(
            f"| {number} | {first.seen_s - accepted_s:.1f} | {late_s:.1f} | {gone_s:.1f} |",
            flush=True,
        )
    during = others.first_late_s[begun:]
    begun = len(others.first_late_s)
    replaced = [bench.change(number) for number in range(1, times + 1)]
    changing = others.first_late_s[begun:]
    bench.apply(times)
    took_s = bench.pause(times, PAUSE_S)
    skip = len(others.stable) - len(before) - len(during) - len(changing)
    bench.check(others, skip=max(skip, 0))
    print("\n| | p50 / p99 / latest, ms |\n|---|---|")
    print(f"| the first query, before | {percentiles(before)} |")
    print(f"| while others are applied and deleted | {percentiles(during)} |")
    print(f"| while it is changed itself | {percentiles(changing)} |")
    print(f"\nReplaced after {', '.join(f'{s:.1f}' for s in replaced)} s.")
    print(f"\nPaused for {PAUSE_S:g} s: in time again after {took_s:.1f} s. Wrong: {bench.wrong}.")


if __name__ == "__main__":
    sys.exit(main())
