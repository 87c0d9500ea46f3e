"""A frame of results on a real Kafka, and the notebook on first answers against X."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer
from tests.support import early_answers as early
from tests.support.starting import make_topics
from tests.support.waiting import WAIT_S_MAX

from slackwater.client.follow import Client
from slackwater.machine.broker import EmbeddedBroker
from slackwater.model.errors import EnvironmentProblem
from slackwater.model.names import RESULT_KINDS, Names, ResultKind

NOTEBOOK = Path(__file__).parents[2] / "docs/howto/first-answers.ipynb"
SEED = 7


class Written:
    """Queries whose results were written, and the readings behind them."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.windows: Mapping[int, Sequence[early.SensorReading]] = early.windows(
            early.readings(SEED)
        )
        for bound_s in early.BOUNDS_S:
            query = f"climate-{bound_s}s"
            results = early.Results(query, bound_s * 1_000_000)
            self._write(query, results.transactions(self.windows))

    def _write(self, query: str, transactions: Iterable[Sequence[Mapping[str, Any]]]) -> None:
        make_topics(self.bootstrap, [Names().results(query, kind) for kind in RESULT_KINDS])
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": uuid.uuid4().hex,
                "log_level": 0,
            }
        )
        producer.init_transactions(WAIT_S_MAX)
        for number, records in enumerate(transactions):
            if number % 50 == 3:  # a root that was fenced leaves records that no reader sees
                self._produce(producer, query, records)
                producer.abort_transaction(WAIT_S_MAX)
            self._produce(producer, query, records)
            producer.commit_transaction(WAIT_S_MAX)

    @staticmethod
    def _produce(producer: Producer, query: str, records: Sequence[Mapping[str, Any]]) -> None:
        producer.begin_transaction()
        for record in records:
            label = record.get("label", record["kind"])
            kind: ResultKind = next((kind for kind in RESULT_KINDS if kind == label), "corrections")
            producer.produce(Names().results(query, kind), orjson.dumps(record), partition=0)
        assert producer.flush(WAIT_S_MAX) == 0


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    """Return the results on a broker of their own: the queries' names are not unique."""
    with EmbeddedBroker(tmp_path_factory.mktemp("frame-broker")) as broker:
        yield Written(broker.bootstrap)


@pytest.mark.parametrize("bound_s", early.BOUNDS_S)
def test_the_frame_has_each_window_and_the_error_of_its_first_answer(
    written: Written, bound_s: int
) -> None:
    client, query = Client(written.bootstrap), f"climate-{bound_s}s"
    best = client.table(query).to_pylist()
    assert [row["temperature_count"] for row in best] == [*map(len, written.windows.values())]
    assert not any(row["tentative"] for row in best)
    bound_us = bound_s * 1_000_000
    expected = [
        error
        for start, there in written.windows.items()
        if (error := early.error_of(there, start + early.WINDOW_US, bound_us)) is not None
    ]
    every = client.table(query, kinds="all").to_pylist()
    found = [row["temperature_avg_error"] for row in every if row["withdrawn"]]
    assert found == pytest.approx(expected)
    assert {row["latency_ms"] for row in every if row["withdrawn"]} <= {bound_s * 1000.0}
    hour = client.table(query, last="1h").to_pylist()
    assert hour == best[-60:]


def test_longer_bounds_have_fewer_tentative_answers(written: Written) -> None:
    client = Client(written.bootstrap)
    counts = [
        sum(client.table(f"climate-{bound_s}s", kinds="all").column("withdrawn").to_pylist())
        for bound_s in early.BOUNDS_S
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]


def test_a_query_that_does_not_exist_is_an_error(written: Written) -> None:
    with pytest.raises(EnvironmentProblem, match=r"sw\.results\.nothing\.stable does not exist"):
        Client(written.bootstrap).table("nothing")


def test_the_notebook_runs(
    written: Written, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("BOOTSTRAP", written.bootstrap)
    monkeypatch.setenv("MPLBACKEND", "agg")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "kept without outputs"
    ran = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    tables = [
        output["data"]["text/plain"]
        for cell in ran.cells
        for output in cell.get("outputs", [])
        if "data" in output
    ]
    assert any("error_mean" in table for table in tables)
    assert any("room-2" in table for table in tables)
