"""``slackwater backfill --check``: what is compared, and how a difference is told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.contracts.transport import no_failure
from tests.support.memory import MemoryBroker
from tests.unit.histories import Root

from slackwater.cli.backfill_check import check_history, crashed
from slackwater.codec.results import format_time
from slackwater.deployment.parse import parse_deployment
from slackwater.judge.batch import compute_all
from slackwater.judge.history import history_checker, read_files
from slackwater.model.deployment import Deployment
from slackwater.model.errors import CheckFailed
from slackwater.model.limits import NEVER
from slackwater.model.names import RESULT_KINDS, Names
from slackwater.runtime.service.registry import QueryDefinition

S = 1_000_000
FILE = """\
apiVersion: slackwater/v1
clock: data
streams:
  a: {key: {column: k}, time: {column: t, unit: s}, fields: [x], disorder: 10s}
  b: {key: {field: k}, time: {field: t, unit: s}, fields: [x]}
queries:
  minutes: {from: [a, b], window: {size: 1m}, aggregate: [count, sum], bound: 1h}
  means: {from: [minutes], select: {mean: x_sum}, window: {size: 2m}, aggregate: [max], bound: 2h}
  large: {from: [a, b], where: x >= 2, bound: 1h}
"""
NAMES = Names()
COUNTS = {"a": {"late": 1, "malformed": 1}, "b": {}}


class History:
    """A history in files, and a broker to which its results are written."""

    def __init__(self, folder: Path) -> None:
        (folder / "a-1.csv").write_text("k,t,x\nn,100,1\nn,95,2\nn,bad,1\nn,170,3\n")
        (folder / "a-2.csv").write_text("k,t,x\nn,165,4\nn,300,5\nn,280,6\n")  # the last is late
        (folder / "b.ndjson").write_text('{"k": "m", "t": 130, "x": 7}\n')
        self.files = {"a": [folder / "a-1.csv", folder / "a-2.csv"], "b": [folder / "b.ndjson"]}
        self.deployment: Deployment = parse_deployment(FILE, "d.yaml").deployment
        self.broker = MemoryBroker()
        for query in self.deployment.queries:
            for kind in RESULT_KINDS:
                self.broker.create_topic(NAMES.results(query, kind))
        for stream in self.files:
            self.broker.create_topic(NAMES.quarantine(stream))

    def definition(self, query: str) -> QueryDefinition:
        return QueryDefinition(query, 0, 95 * S, 50 * S, self.deployment.queries[query])

    def answers(self, query: str) -> list[dict[str, Any]]:
        """The results of a correct root."""
        inputs = {n: read_files(self.deployment.streams[n], of, {}) for n, of in self.files.items()}
        queries = self.deployment.in_order()
        spec = self.deployment.queries[query]
        checker = history_checker(queries, inputs, spec, 95 * S, 50 * S)
        root = Root(checker.expectations, compute_all(queries, inputs, NEVER)[0][query])
        root.stable(checker.expectations.windows)
        return root.records

    def write(self, query: str, records: list[dict[str, Any]]) -> None:
        writer = self.broker.writer(no_failure)
        for record in records:
            value = {k: v for k, v in record.items() if k != "seen_at"}
            writer.append(NAMES.results(query, "stable"), 0, orjson.dumps(value))

    def check(self, query: str, counts: Mapping[str, Mapping[str, int]] = COUNTS) -> str:
        definition = self.definition(query)
        return check_history(self.broker, self.deployment, definition, self.files, counts)


@pytest.fixture(name="history")
def _history(tmp_path: Path) -> History:
    return History(tmp_path)


@pytest.mark.parametrize("query", ["minutes", "means"])
def test_exact_results_have_a_verdict(history: History, query: str) -> None:
    history.write(query, history.answers(query))
    verdict = history.check(query)
    assert "0 lost, 0 doubled, 0 uncorrected, 0 wrong" in verdict
    assert verdict.endswith("; all results equal the batch computation")


def test_files_of_a_stream_are_one_input(history: History) -> None:
    read = read_files(history.deployment.streams["a"], history.files["a"], {})
    assert [reading.stime // S for reading in read.accepted] == [100, 95, 170, 165, 300]
    assert (len(read.late), read.malformed) == (1, 1)
    less = read_files(history.deployment.streams["a"], history.files["a"], {1: {2, 3}})
    assert [reading.stime // S for reading in less.accepted] == [100, 95, 170, 280]


def first_row(records: list[dict[str, Any]]) -> dict[str, Any]:
    return next(record for record in records if record["kind"] == "stable")


def changed(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    first_row(records)["fields"]["x"]["sum"] += 1
    return records


def of_another_key(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    first_row(records)["key"] = "other"
    return records


def cut_off(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return records[:-1]


@pytest.mark.parametrize(
    ("spoil", "why"),
    [(changed, r"x\.sum is 4\.0, not 3\.0"), (of_another_key, "is unknown"), (cut_off, "lost")],
)
def test_a_difference_ends_with_code_1(
    history: History, spoil: Any, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    history.write("minutes", spoil(history.answers("minutes")))
    with pytest.raises(CheckFailed, match=why) as error:
        history.check("minutes")
    assert error.value.exit_code == 1
    assert "checked " in capsys.readouterr().out


def test_what_is_in_quarantine_is_compared(history: History) -> None:
    history.write("minutes", history.answers("minutes"))
    with pytest.raises(CheckFailed, match="quarantine: 0 late readings of a, not 1"):
        history.check("minutes", {"a": {"malformed": 1}})


def rows_of(history: History, order: list[tuple[int, str, float]]) -> list[dict[str, Any]]:
    """Return the answers of the query without a window, in buckets of 50 s."""
    records: list[dict[str, Any]] = []
    for start in range(50 * S, 350 * S, 50 * S):
        bucket = {"window_start": format_time(start), "window_end": format_time(start + 50 * S)}
        shared = {"query": "large", "part": 0, "epoch": 0, "missing": [], **bucket}
        mine = [one for one in order if start <= one[0] * S < start + 50 * S]
        for t, key, x in mine:
            records.append(
                {"kind": "stable", "key": key, "stime": format_time(t * S), "fields": {"x": x}}
                | shared
            )
        end = {"kind": "boundary", "label": "stable", "keys": len(mine), "windows": 1}
        records.append({**end, **shared, "emitted_at": format_time(10**15)})
    return [record | {"seq": seq} for seq, record in enumerate(records)]


def test_rows_are_compared_in_the_buckets_of_their_definition(history: History) -> None:
    right = [(95, "n", 2.0), (130, "m", 7.0), (165, "n", 4.0), (170, "n", 3.0), (300, "n", 5.0)]
    history.write("large", rows_of(history, right))
    assert "checked 5 rows in 6 buckets of readings" in history.check("large")
    again = History(history.files["b"][0].parent)
    again.write("large", rows_of(again, [right[0], *right[2:]]))
    with pytest.raises(CheckFailed, match="no stable row"):
        again.check("large")


def test_places_that_crashed_their_reader_are_left_out(history: History) -> None:
    writer = history.broker.writer(no_failure)
    for position, reason in (("history:3", "crash"), ("history+2:7", "crash"), ("x:1", "late")):
        entry = {"position": position, "reason": reason}
        writer.append(NAMES.quarantine("a"), 0, orjson.dumps(entry))
    assert crashed(history.broker, "a") == {0: {3}, 2: {7}}
