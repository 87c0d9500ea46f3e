"""``slackwater backfill``: the deployment that it runs, and its progress."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.cli.backfill import BackfillOptions, _chosen, run_backfill
from slackwater.cli.backfill_progress import Backfilled, lines_in
from slackwater.deployment.parse import parse_deployment
from slackwater.model.errors import SlackwaterError, UsageError

FILE = """\
apiVersion: slackwater/v1
clock: wall
streams:
  a: {key: {column: k}, time: {column: t, unit: s}, fields: [x], ahead: 5s}
  b: {key: {column: k}, time: {column: t, unit: s}, fields: [x]}
  live: {topic: {name: in, format: json}, key: {field: k}, time: {field: t, unit: s}, fields: [x],
         sporadic: true}
queries:
  hours: {from: [a], window: {size: 1h}, aggregate: [count], bound: 2s}
  days:
    {from: [hours, b], window: {size: 1d}, aggregate: [sum], bound: 4s, replicas: 2,
     policy: {failure: delay}}
  lives: {from: [live], window: {size: 1h}, aggregate: [count], bound: 2s}
"""


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> Path:
    (tmp_path / "d.yaml").write_text(FILE)
    (tmp_path / "x.csv").write_text("k,t,x\nn,1,2\n")
    return tmp_path / "d.yaml"


def options(file: Path, query: str, *streams: str) -> BackfillOptions:
    files = dict.fromkeys(streams, file.parent / "x.csv")
    return BackfillOptions(file, query, files, file.parent / "out.jsonl")


def test_the_query_and_what_it_reads_follow_the_data_with_one_replica_each(file: Path) -> None:
    content, _ = _chosen(options(file, "days", "a", "b"))
    found = parse_deployment(content, "copy.yaml").deployment
    assert found.clock == "data"
    assert set(found.queries) == {"hours", "days"}
    assert set(found.streams) == {"a", "b"}
    assert {query.replicas for query in found.queries.values()} == {1}
    assert {query.bound_us for query in found.queries.values()} == {3_600_000_000}
    given = parse_deployment(FILE, "d.yaml").deployment
    for name, query in found.queries.items():
        assert query.window == given.queries[name].window
        assert query.aggregate == given.queries[name].aggregate


@pytest.mark.parametrize(
    ("query", "streams", "reason"),
    [
        ("weeks", ("a",), "there is no query weeks, only hours, days, lives"),
        ("days", ("a",), "query days reads b: add --from b=FILE"),
        ("hours", ("a", "b"), "query hours does not read stream b"),
        ("lives", ("live",), "stream live is fed by topic in"),
        ("hours", ("c",), "there is no stream c"),
    ],
)
def test_a_query_and_files_that_do_not_fit_are_refused(
    file: Path, query: str, streams: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        run_backfill(options(file, query, *streams))


def test_files_and_folders_are_checked_before_anything_starts(file: Path, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("k,x\nn,2\n")
    with pytest.raises(SlackwaterError, match="t"):
        run_backfill(options(file, "hours", "a"))
    (tmp_path / "x.csv").write_text("k,t,x\nn,1,2\n")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "run.json").write_text("{}")
    given = BackfillOptions(
        file, "hours", {"a": tmp_path / "x.csv"}, tmp_path / "o.jsonl", tmp_path / "used"
    )
    with pytest.raises(UsageError, match="another run"):
        run_backfill(given)
    with pytest.raises(UsageError, match="there is no directory"):
        run_backfill(
            BackfillOptions(file, "hours", {"a": tmp_path / "x.csv"}, tmp_path / "no" / "o.jsonl")
        )


def test_progress_is_the_part_of_the_files_that_is_read_and_answered() -> None:
    seen = Backfilled()
    assert seen.fraction(1_000) is None
    seen.readings, seen.last_us = {"a": 300, "b": 200}, {"a": 900, "b": 1_100}
    assert seen.fraction(1_000) is None, "the query has not begun"
    seen.begin(100, range(2))
    assert seen.fraction(1_000) == 0
    seen.answered_us = {0: 600, 1: 1_000}
    assert seen.fraction(1_000) == 0.25
    assert seen.fraction(None) is None
    seen.readings, seen.answered_us = {"a": 600, "b": 401}, {0: 2_000, 1: 2_000}
    assert seen.fraction(1_000) == 1


def test_lines_are_counted_by_their_size_or_told_by_the_file(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.csv", tmp_path / "a.csv.gz"
    plain.write_text("k,t\n" + "n,123456\n" * 20_000)
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert abs((lines_in(plain) or 0) - 20_001) < 20
    assert lines_in(packed) is None
    table = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": range(20_000)}), table)
    assert lines_in(table) == 20_000
