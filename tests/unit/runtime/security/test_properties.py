"""Files of properties are parsed as by Java."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.runtime.security.properties import PropertiesError, parse_properties


def values(text: str) -> dict[str, str]:
    return {key: found.value for key, found in parse_properties(text).items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),  # blanks at the end are a part of the value
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\t:  b=c", {"a": "b=c"}),
        ("a", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("  # comment\n! another\n\na=1", {"a": "1"}),
        ("a=1\\\n   2\\\n3", {"a": "123"}),
        (
            "a=1\\\\\nb=2",
            {"a": "1\\", "b": "2"},
        ),  # an even number of backslashes: no continuation
        ("a=1\\", {"a": "1"}),
        ("a=1\\\n# no comment here", {"a": "1# no comment here"}),
        ("a\\ b\\=c=d", {"a b=c": "d"}),
        ('a=\\t\\n\\u0041\\q\\"', {"a": '\t\nAq"'}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=x\u2028y", {"a": "x\u2028y"}),  # not a line end for Java
        ("", {}),
    ],
)
def test_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert values(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=1\n\na=2", "line 3: a is given twice, first in line 1"),
        ("a=1\nb=hidden\\u12g4", r"line 2: \u needs four hexadecimal digits"),
    ],
)
def test_an_error_names_the_line_and_no_value(text: str, message: str) -> None:
    with pytest.raises(PropertiesError) as caught:
        parse_properties(text)
    assert str(caught.value) == message


def test_a_property_does_not_show_its_value() -> None:
    assert "hidden" not in repr(parse_properties("password=hidden"))


def escaped(text: str, *, key: bool) -> str:
    special = " =:#!\t\f" if key else ""
    leading = " \t\f"
    out = []
    for at, letter in enumerate(text):
        if letter in "\\\n\r":
            out.append({"\\": "\\\\", "\n": "\\n", "\r": "\\r"}[letter])
        elif letter in special or (at == 0 and letter in leading + "=:"):
            out.append("\\" + letter)
        else:
            out.append(letter)
    return "".join(out)


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=5))
def test_what_is_escaped_comes_back(content: dict[str, str]) -> None:
    text = "\n".join(
        f"{escaped(key, key=True)}={escaped(value, key=False)}" for key, value in content.items()
    )
    assert values(text) == content
