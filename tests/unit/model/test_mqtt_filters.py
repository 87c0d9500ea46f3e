"""Addresses of MQTT brokers, and the rules of topic filters."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.client import topic_matches_sub

from slackwater.model.mqtt import MqttSpec, broker_of, has_level, overlap, why_no_filter

LEVELS = ("a", "b", "", "$s")
TOPICS = ["/".join(levels) for n in (1, 2, 3) for levels in product(LEVELS, repeat=n)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("broker.example:8883", ("broker.example", 8883)),
        ("broker", ("broker", 1883)),
        ("[::1]", ("::1", 1883)),
        ("[fe80::1]:9", ("fe80::1", 9)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, expected: tuple[str, int]) -> None:
    assert broker_of(text, 1883) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", ":1883", "h:0", "h:65536", "h:x", "h:1:2", "[::1", "[::1]x", "a b", "mqtt://h"),
        *("u@h:1", "h:" + "9" * 5000, "h:\u0663"),
    ],
)
def test_other_texts_are_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be|not a port|brackets"):
        broker_of(text, 1883)


def test_an_address_is_shown_as_it_is_written() -> None:
    assert MqttSpec("::1", 1883, ("a",), "c").address == "[::1]:1883"
    assert MqttSpec("h", 1, ("a",), "c").address == "h:1"


@pytest.mark.parametrize("text", ["a", "a/b", "+", "#", "a/+/b", "a/#", "/", "$SYS/#", "ä/+"])
def test_these_are_filters(text: str) -> None:
    assert why_no_filter(text) is None


@pytest.mark.parametrize(
    "text", ["", "a/#/b", "a#", "a+/b", "#a", "$share/g/a", "a\0", "x" * 65_536]
)
def test_these_are_none(text: str) -> None:
    assert why_no_filter(text) is not None


def test_levels_count_from_one() -> None:
    assert has_level("a/+/c", 3)
    assert not has_level("a/+/c", 4)
    assert has_level("a/#", 9)


a_filter = st.lists(st.sampled_from([*LEVELS, "+"]), min_size=1, max_size=3).flatmap(
    lambda levels: st.sampled_from(["/".join(levels), "/".join([*levels[:2], "#"]), "#"])
)


@given(a_filter, a_filter)
def test_filters_overlap_if_a_topic_matches_both(one: str, other: str) -> None:
    both = any(topic_matches_sub(one, t) and topic_matches_sub(other, t) for t in TOPICS)
    assert overlap(one, other) == overlap(other, one) == both
