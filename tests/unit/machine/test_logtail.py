"""The end of a process's log: its error as a sentence, a crash as one line, of one life."""

from __future__ import annotations

from pathlib import Path

import pytest

from slackwater.machine.logtail import (
    LINE_CHARS_MAX,
    LINES_MAX,
    TAIL_BYTES_MAX,
    failure_excerpt,
    last_error,
    last_lines,
    last_message,
)

CRASH = """\
2026-03-15T08:47:28.545Z INFO proxy/s slackwater.proxy: 200 readings
Fatal Python error: Segmentation fault

Current thread 0x00007f (most recent call first):
  File "formats/json_input.py", line 101 in parse
  File "proxy/app.py", line 44 in main
"""


def test_a_crash_is_shown_from_the_interpreters_report_on(tmp_path: Path) -> None:
    log = tmp_path / "proxy-s.log"
    log.write_text(CRASH)
    words = failure_excerpt(log)
    assert words.startswith("Fatal Python error: Segmentation fault | Current thread")
    assert 'File "formats/json_input.py", line 101 in parse' in words
    assert last_error(log) == "Fatal Python error: Segmentation fault"


def test_the_last_error_line_is_the_sentence(tmp_path: Path) -> None:
    log = tmp_path / "root-q.0.log"
    log.write_text(
        "t ERROR root/q.0 a.b: the first\nt CRITICAL root/q.0 a.b: topic: gone\nt INFO x y: after\n"
    )
    assert last_error(log) == "topic: gone"
    assert last_message(log, "root/q.0") == "topic: gone"
    assert last_message(log, "of-no-line-here") == "topic: gone"
    assert failure_excerpt(log).endswith("t INFO x y: after")


def test_of_several_streams_each_has_its_own_sentence(tmp_path: Path) -> None:
    log = tmp_path / "proxy.log"
    log.write_text("t ERROR proxy/a a.b: gone\nt ERROR proxy/ab a.b: full\nt ERROR proxy x.y: z\n")
    assert last_message(log, "proxy/a") == "gone"
    assert last_message(log, "proxy/ab") == "full"


def test_an_error_of_an_earlier_life_is_not_this_ones(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("t ERROR x y: of the life before\n")
    born = log.stat().st_size
    assert last_error(log, born) is None
    with log.open("a") as file:
        file.write("t INFO x y: it went well\n")
    assert last_error(log, born) is None
    log.write_text("t ERROR x y: cut\n")
    assert last_error(log, born) == "cut", "the log was rotated meanwhile"


INFO = "2026-03-15T08:47:28.545Z INFO proxy/s slackwater.proxy: 200 readings\n"
WARNING = "2026-03-15T08:47:29.545Z WARNING proxy/s slackwater.proxy: Kafka is slow\n"
ERROR = "2026-03-15T08:47:30.545Z ERROR proxy/s slackwater.proxy: the disk is full\n"
TRACEBACK = """\
Traceback (most recent call last):
  File "proxy/app.py", line 44, in main
    run()
ValueError: no such field: x
"""


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (INFO, None),
        (WARNING + INFO, "Kafka is slow"),
        (WARNING + ERROR + WARNING + INFO, "the disk is full"),
        (ERROR + TRACEBACK + INFO, "ValueError: no such field: x"),
        (TRACEBACK + ERROR + INFO, "the disk is full"),
        (TRACEBACK.replace("Traceback", "t ERROR x y: it failed\nTraceback") + INFO,
         "ValueError: no such field: x"),
        (INFO + "slackwater: no space left\n", "slackwater: no space left"),
        ("26/03/15 08:47:28 INFO SparkContext: Running Spark\n", None),
        ("26/03/15 08:47:28 WARN Utils: no loopback\n" + INFO, "no loopback"),
        ("26/03/15 08:47:28 ERROR Executor: out of memory\n" + INFO, "out of memory"),
        ("[2026-03-15 08:47:28,545] INFO [broker] closed: all (kafka.Server)\n", None),
    ],
)  # fmt: skip
def test_an_end_is_explained_by_what_went_wrong_and_never_by_the_last_line_of_a_good_life(
    tmp_path: Path, text: str, error: str | None
) -> None:
    log = tmp_path / "proxy-s.log"
    log.write_text(text)
    assert last_error(log) == error


def test_nothing_is_larger_than_its_bound(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("".join(f"{'y' * 3_000} {n}\n" for n in range(100)))
    assert sum(map(len, last_lines(log))) <= TAIL_BYTES_MAX
    assert len(failure_excerpt(log)) <= LINES_MAX * (LINE_CHARS_MAX + 3)
    assert len(last_error(log) or "") == LINE_CHARS_MAX


def test_without_a_word_or_a_log(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    assert last_error(log) is None
    assert failure_excerpt(log) == ""
    assert last_message(log, "x") == f"it ended without an error message (see {log})"


def test_sequences_for_a_terminal_are_left_out(tmp_path: Path) -> None:
    log = tmp_path / "host-0.log"
    log.write_bytes(b"\x1b[?25h\x1b[32mOK \x1b[0m^\nt ERROR host/0 a.b: \x1b[1mgone\x1b[0m\n")
    assert failure_excerpt(log) == "OK ^ | t ERROR host/0 a.b: gone"
    assert last_error(log) == "gone"
