"""The blocks of docs/howto/send-from-python.md run, with the stream of a test."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pyarrow as pa
import pytest
from tests.support.http_site import TOKEN, Site, opened
from tests.support.ports import free_port
from tests.unit.proxy.test_pushed import PushWorld, reading

import slackwater
from slackwater.deployment.parse import load_deployment
from slackwater.producer.batches import as_table, encoded, pieces_of
from slackwater.proxy.http.bodies import reader_for
from slackwater.proxy.http.tables import ARROW
from slackwater.proxy.requests import BodyContent

PAGE = Path(__file__).parents[3] / "docs/howto/send-from-python.md"
HTTP_PAGE = PAGE.with_name("send-over-http.md")
SUBSTITUTES = {
    '"room-1"': '"guarded"',
    '"temperature"': '"t"',
    "time.time_ns() // 1_000_000": "1000",
}
"""The stream of the test, its field, and the present time of its clock."""


def block(content: str) -> str:
    """The page's block that contains a text, for the stream of the test."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (text,) = [each for each in blocks if content in each]
    for name, substitute in SUBSTITUTES.items():
        text = text.replace(name, substitute)
    return str(text)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "room-1.tokens").write_text(f"{TOKEN}\n")
    with opened(PushWorld(tmp_path / "site"), free_port(), tmp_path) as made:
        url = f"http://127.0.0.1:{made.port}"
        monkeypatch.setattr(slackwater, "Producer", functools.partial(slackwater.Producer, url=url))
        yield made


def test_the_first_block_prints_what_the_page_says(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    text = block("import numpy as np")
    exec(text, {})
    (printed,) = re.findall(r"# (\{.*\})$", text, re.MULTILINE)
    assert capsys.readouterr().out == f"{printed}\n"
    assert [stime for _, stime, _ in site.world.readings()] == [1000, 1001, 1002]


def test_the_first_block_sends_to_the_stream_that_the_page_of_http_declares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That stream has two fields; the block sends one of them."""
    (declared,) = re.findall(r"```yaml\n(.*?)```", HTTP_PAGE.read_text(), re.DOTALL)
    (tmp_path / "rooms.yaml").write_text(declared)
    spec = load_deployment(tmp_path / "rooms.yaml").streams["room-1"]
    read = reader_for(spec, ARROW, 0)
    assert read is not None
    sent: list[BodyContent] = []
    made = MagicMock()
    made.__enter__.return_value.send = lambda one: sent.append(
        read(encoded(as_table(pieces_of(one))))
    )
    monkeypatch.setattr(slackwater, "Producer", lambda *_, **__: made)
    text = block("import numpy as np")
    for name, substitute in SUBSTITUTES.items():
        text = text.replace(substitute, name)
    exec(text, {})
    assert [len(one.parsed.stimes) for one in sent] == [2, 1]
    temperatures, humidities = zip(*(one.parsed.values for one in sent), strict=True)
    assert [value for column in temperatures for value in column] == [20.5, 20.6, 21.0]
    assert all(np.isnan(column).all() for column in humidities)


def test_a_sender_that_is_started_again_continues_at_its_position(site: Site) -> None:
    archive = Path("archive")
    archive.mkdir()
    text = block("room-1.state")
    for count in (2, 5):
        for i in range(count):
            (archive / f"{i}.json").write_text(json.dumps(reading(1000 + i)))
        exec(text, {})
    assert [stime for _, stime, _ in site.world.readings()] == [1000 + i for i in range(5)]


def test_readings_with_an_id_count_once(site: Site) -> None:
    text = block("monday-17")
    table = pa.Table.from_pylist([reading(1000), reading(1001)])
    for _ in range(2):
        with slackwater.Producer("guarded", token_file="room-1.tokens") as producer:
            exec(text, {"producer": producer, "table": table})
    assert len(site.world.readings()) == 2


def test_the_request_on_the_page_of_http_has_the_response_of_the_page(site: Site) -> None:
    page = HTTP_PAGE.read_text()
    (body, *_) = re.findall(r"-d '(\[.*\])'", page)
    body = body.replace("'$(date +%s%3N)'", "1000").replace('"temperature"', '"t"')
    (response, *_) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)

    status, found = site.post(body.encode(), {"Authorization": f"Bearer {TOKEN}"}, stream="guarded")

    assert (status, found) == (200, json.loads(response) | {"stream": "guarded"})
