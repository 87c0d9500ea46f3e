"""The command line of a proxy process: options by stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from slackwater.model.errors import UsageError
from slackwater.proxy.inputs import StreamOptions, add_arguments, options_of
from slackwater.proxy.shell import Silence
from slackwater.runtime.service.entry import argument_parser

COMMON = ["--deployment", "d", "--bootstrap", "b", "--data-dir", "x"]


def parsed(*given: str) -> dict[str, StreamOptions]:
    parser = argument_parser("proxy", "STREAM")
    add_arguments(parser)
    arguments = parser.parse_args([*given, *COMMON])
    return dict(options_of(arguments, tuple(arguments.names)))


def test_the_option_of_a_process_with_one_stream_is_that_streams() -> None:
    found = parsed("a", "--input", "x=y.csv", "--silence", "5:8", "--end-at", "7")["a"]
    assert found.input == Path("x=y.csv")
    assert found.silences == (Silence(5_000_000, 8_000_000),)
    assert found.end_at_us == 7
    assert parsed("a", "--input", "a=y.csv")["a"].input == Path("y.csv")


def test_with_several_streams_each_is_named() -> None:
    found = parsed(
        "a", "b", "c", "--input", "a=1.csv", "--input", "b=2=2.csv", "--silence", "b=1:2",
        "--silence", "b=0.5:1", "--end-boundary", "9",
    )  # fmt: skip
    assert [found[s].input for s in "abc"] == [Path("1.csv"), Path("2=2.csv"), None]
    assert [len(found[s].silences) for s in "abc"] == [0, 2, 0]
    assert {each.end_boundary_us for each in found.values()} == {9}


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        (["a", "b", "--input", "1.csv"], "--input 1.csv: write STREAM=..., one of a, b"),
        (["a", "b", "--input", "c=1.csv"], "one of a, b"),
        (["a", "--input", "1.csv", "--input", "2.csv"], "stream a has two files"),
        (["a", "--silence", "5"], "'5' is not AT_S:FOR_S"),
        (["a", "--silence=-5:8"], "cannot be negative"),
    ],
)
def test_what_is_no_option_of_a_stream_is_refused(given: list[str], reported: str) -> None:
    with pytest.raises(UsageError, match=reported.replace("...", r"\.\.\.")):
        parsed(*given)
