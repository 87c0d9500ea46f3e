"""One line per event, with the process's name, without secrets."""

import io
import logging
import re
import threading
from collections.abc import Iterator

import pytest

from slackwater.runtime.service.log import named, set_up_logging, without_secrets


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    set_up_logging("orderer/climate.0.a", stream=stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_line_has_time_event_and_process(written: io.StringIO) -> None:
    logging.getLogger("slackwater.x").info("parked %s", "room-1")
    when, rest = written.getvalue().split(" ", 1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", when)
    assert rest == "INFO orderer/climate.0.a slackwater.x: parked room-1\n"


def test_a_line_of_a_part_of_the_process_has_its_name(written: io.StringIO) -> None:
    with named("proxy/room-1"):
        logging.getLogger("slackwater.x").info("one")
        thread = threading.Thread(target=logging.getLogger("slackwater.x").info, args=("two",))
        thread.start()
        thread.join()
    logging.getLogger("slackwater.x").info("three")
    who = [line.split(" ")[2] for line in written.getvalue().splitlines()]
    assert who == ["proxy/room-1", "orderer/climate.0.a", "orderer/climate.0.a"]


def test_an_event_is_one_line_even_with_a_traceback(written: io.StringIO) -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        logging.getLogger("slackwater.x").exception("it failed")
    line = written.getvalue()
    assert line.count("\n") == 1
    assert "it failed | Traceback" in line
    assert "ValueError: first | second" in line


def test_setting_up_again_changes_the_name_and_doubles_nothing(written: io.StringIO) -> None:
    set_up_logging("root/climate.0", stream=written)
    logging.getLogger("slackwater.x").info("once")
    assert written.getvalue().count("once") == 1
    assert " root/climate.0 " in written.getvalue()


def test_libraries_speak_only_when_something_is_wrong(written: io.StringIO) -> None:
    logging.getLogger("aiokafka.consumer").info("rebalanced")
    logging.getLogger("aiokafka.consumer").warning("no broker")
    assert "rebalanced" not in written.getvalue()
    assert "no broker" in written.getvalue()


@pytest.mark.parametrize(
    ("emitted", "kept"),
    [
        ("sasl.password=hunter2 user=me", "sasl.password=*** user=me"),
        ("{'sasl_plain_password': 'hunter2', 'x': 1}", "{'sasl_plain_password': '***', 'x': 1}"),
        ("mqtt://me:hunter2@host:1883/topic", "mqtt://me:***@host:1883/topic"),
        ("API-Key: hunter2", "API-Key: ***"),
        ("http://127.0.0.1:9092/path", "http://127.0.0.1:9092/path"),
        ("a tokenizer reads 3 words", "a tokenizer reads 3 words"),
    ],
)
def test_secrets_are_taken_out_and_nothing_else(emitted: str, kept: str) -> None:
    assert without_secrets(emitted) == kept


def test_a_repeated_line_of_a_client_is_logged_once(written: io.StringIO) -> None:
    for attempt in range(50):
        logging.getLogger("aiokafka.conn").error("cannot connect to %s", attempt)
        logging.getLogger("slackwater.root").error("said each time")
    lines = written.getvalue().splitlines()
    assert sum("cannot connect" in line for line in lines) == 1
    assert sum("said each time" in line for line in lines) == 50
