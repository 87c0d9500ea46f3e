"""The scanner never differs from the definition, and reads no byte beyond a message."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.judge import judge_messages
from tests.fuzz.mutants import COLUMNS_MUTANTS, MUTANTS, ScanMutant, findings_of
from tests.fuzz.near import STREAMS

from slackwater.formats.json_columns import JsonColumnsReader
from slackwater.formats.json_input import JsonReader
from slackwater.formats.messages import Messages, Parsed
from slackwater.formats.scan import compiled, kernel, scanner_of
from slackwater.formats.scan.keys import KEYS_MAX, Keys
from slackwater.formats.scan.scanner import Scanner
from slackwater.model.deployment import FieldSpec, KeySpec, StreamSpec, TimeSpec

ROOT = Path(__file__).parents[4]
SPEC = StreamSpec(
    "lab", KeySpec(field="k"), TimeSpec(field="at", unit="ms"), (FieldSpec("t", "t"),)
)
MESSAGE = b'{"k":"m%d","at":%d,"t":%s}'


def scanner(spec: StreamSpec = SPEC) -> Scanner:
    found = scanner_of(spec)
    assert found is not None, "numba is among the dependencies"
    return found


@pytest.mark.drill
@pytest.mark.parametrize("mutant", MUTANTS + COLUMNS_MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mistake_in_the_scanner_is_noticed(mutant: ScanMutant, tmp_path: Path) -> None:
    assert findings_of(mutant, tmp_path), f"not detected: {mutant.name}"


NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,4})?", fullmatch=True),
)
TEXTS = st.text(max_size=12)


@settings(max_examples=200)
@given(
    st.lists(st.tuples(TEXTS, NUMBERS, NUMBERS), min_size=1, max_size=20), st.sampled_from(STREAMS)
)
def test_any_number_and_any_text_is_read_as_the_definition_has_it(
    rows: list[tuple[str, str, str]], spec: StreamSpec
) -> None:
    messages = [
        b'{"k":"%s","at":%s,"t":%s,"a":{"k":"%s"}}'
        % (
            key.encode(errors="surrogatepass"),
            at.encode(),
            t.encode(),
            key.encode(errors="replace"),
        )
        for key, at, t in rows
    ]
    assert judge_messages(spec, messages) == []


@pytest.mark.parametrize(
    ("time", "at"),
    [
        (TimeSpec(field="at", unit="s"), b"1458031648.545"),
        (TimeSpec(field="at", unit="ms"), b"1458031648545"),
        (TimeSpec(field="at", unit="us"), b'"1458031648545000"'),
        (TimeSpec(field="at", unit="iso"), b'"2016-03-15T08:47:28.545Z"'),
    ],
)
def test_usual_messages_are_not_left(time: TimeSpec, at: bytes) -> None:
    rows = [b'{"k": "m", "at": %s, "t": %s}' % (at, t) for t in (b"21.4", b"null", b'"3"')]
    scanned = scanner(replace(SPEC, time=time)).scan(Messages.of(rows))
    assert len(scanned.left) == 0
    assert scanned.stimes.tolist() == [1_458_031_648_545_000] * 3


def test_usual_columns_are_not_left() -> None:
    rows = [
        b'{"at": [1, 2], "k": ["a", "b"], "t": [1.5, null]}',
        b'{"at":3,"k":["b","a","a"],"more":[[1]],"t":2}',
        b'{"k":7,"at":[4]}',
        b'{"k":[],"at":[]}',
    ]
    read = scanner()
    scanned = read.scan_columns(Messages.of(rows), 3)
    assert len(scanned.left) == 0
    assert scanned.counts.tolist() == [2, 3, 1, 0]
    assert scanned.stimes.tolist() == [1_000, 2_000, 3_000, 3_000, 3_000, 4_000]
    assert [read.texts[code] for code in scanned.key_index.tolist()] == [*"abbaa", "7"]
    np.testing.assert_array_equal(scanned.values, [[1.5, np.nan, 2, 2, 2, np.nan]])


def test_a_message_of_more_rows_than_the_maximum_is_left() -> None:
    rows = [b'{"k":"a","at":[1,2,3]}', b'{"k":"a","at":[4,5]}']
    scanned = scanner().scan_columns(Messages.of(rows), 2)
    assert (scanned.left.tolist(), scanned.stimes.tolist()) == ([0], [4_000, 5_000])


def test_messages_that_are_left_are_parsed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = JsonColumnsReader(SPEC)
    batches: list[int] = []
    without = reader.parse_without_scanner

    def counted(messages: Sequence[bytes]) -> Parsed:
        batches.append(len(messages))
        return without(messages)

    monkeypatch.setattr(reader, "parse_without_scanner", counted)
    keys = ["m", "gr\u00fcn", "n", "blau"]
    rows = [json.dumps({"k": keys[i % 4], "at": [i, i + 1]}).encode() for i in range(100)]
    parsed = reader.parse(rows)
    assert batches == [25]
    assert parsed.stimes.tolist() == [1_000 * j for i in range(100) for j in (i, i + 1)]
    assert parsed.elements is not None
    assert parsed.elements.messages.tolist() == [i for i in range(100) for _ in range(2)]
    names = [parsed.keys[code] for code in parsed.key_index.tolist()]
    assert names == [keys[i % 4] for i in range(100) for _ in range(2)]


def test_commas_of_texts_and_of_long_messages_take_no_memory() -> None:
    rows = [b'{"k":"a","at":[1],"more":"%s"}' % (b"," * 500_000), b"," * 3_000_000]
    messages = Messages.of(rows)
    starts, ends = messages.starts.ctypes.data, messages.ends.ctypes.data
    assert kernel.rows_at_most(starts, ends, 2, 1_000) == 1_000
    assert scanner().scan_columns(messages, 1_000).left.tolist() == [1]


def test_what_is_left_stands_in_its_place() -> None:
    rows = [MESSAGE % (i % 7, i, b"%d.5" % i) for i in range(100)]
    rows[10] = b'{"k":"m\\u0033","at":10,"t":10.5}'
    rows[20] = b"nonsense"
    rows[30] = b'{"boundary": 30}'
    parsed = JsonReader(SPEC).parse(rows)
    readings = [i for i in range(100) if i not in (20, 30)]
    assert parsed.indices.tolist() == readings
    assert parsed.stimes.tolist() == [1_000 * i for i in readings]
    assert [parsed.keys[i] for i in parsed.key_index.tolist()] == [f"m{i % 7}" for i in readings]
    assert parsed.values[0].tolist() == [i + 0.5 for i in readings]
    assert ([bad.index for bad in parsed.bad], parsed.boundaries) == ([20], ((30, 30_000),))


@pytest.mark.parametrize(
    "spec",
    [
        replace(SPEC, time=TimeSpec(field="at", format="%d/%m/%Y")),
        replace(SPEC, time=TimeSpec(field="boundary", unit="ms")),
        replace(SPEC, fields=(FieldSpec("a", "v"), FieldSpec("b", "v.b"))),
        replace(SPEC, fields=tuple(FieldSpec(f"f{i}", f"f{i}") for i in range(70))),
    ],
    ids=["times in a format", "a boundary's name", "inside another", "many names"],
)
def test_what_the_scanner_cannot_read_is_read_without_it(spec: StreamSpec) -> None:
    assert scanner_of(spec) is None
    parsed = JsonReader(spec).parse([b'{"k":"a","at":"01/02/2024","boundary":5,"more":1}'])
    assert len(parsed.indices) + len(parsed.bad) == 1


@pytest.mark.parametrize("name", ["a\\b", "a\\u0062", 'a"b', 'a":"b', "a\x01b", "a\tb"])
def test_a_name_that_json_escapes_is_compared_as_text(name: str) -> None:
    """In a message these bytes are another name, or none."""
    spec = replace(SPEC, fields=(FieldSpec("t", name),))
    message = '{"k":"m","at":1,"%s":5}' % name  # noqa: UP031
    assert scanner_of(spec) is None
    assert judge_messages(spec, [message.encode()] * 20) == []
    escaped = json.dumps({"k": "m", "at": 1, name: 5}).encode()
    assert JsonReader(spec).parse([escaped]).values[0].tolist() == [5.0]


SETTING = """
from slackwater.model.deployment import FieldSpec, KeySpec, StreamSpec, TimeSpec
from slackwater.formats.json_input import JsonReader

SPEC = StreamSpec(
    "lab", KeySpec(field="k"), TimeSpec(field="at", unit="ms"), (FieldSpec("t", "t"),)
)
"""
WITHOUT_NUMBA = (
    SETTING
    + """
import sys

sys.modules["numba"] = None
reader = JsonReader(SPEC)
assert reader._scanner is None
assert reader.parse([b'{"k":"a","at":5,"t":1}'] * 3).stimes.tolist() == [5_000] * 3
"""
)


WITHOUT_A_FOLDER = (
    SETTING
    + """
import shutil, sys, tempfile
import slackwater.formats.scan as scan

def refuse(*_, **__):
    raise OSError("read-only")

# A copy that differs, so that no machine code of it is kept anywhere.
without = shutil.ignore_patterns("__pycache__")
scan.__path__[:] = [str(shutil.copytree(scan.__path__[0], sys.argv[1], ignore=without))]
with open(sys.argv[1] + "/times.py", "a") as file:
    file.write("# other")
tempfile.TemporaryFile = refuse
reader = JsonReader(SPEC)
assert reader._scanner is None
assert reader.parse([b'{"k":"a","at":5,"t":1}'] * 3).stimes.tolist() == [5_000] * 3
"""
)


def test_without_numba_the_reader_goes_without() -> None:
    done = run(WITHOUT_NUMBA)
    assert done.returncode == 0, done.stderr[-2_000:]


def test_without_a_folder_for_machine_code_the_reader_goes_without(tmp_path: Path) -> None:
    done = run(WITHOUT_A_FOLDER, str(tmp_path / "scan"))
    assert done.returncode == 0, done.stderr[-2_000:]


def test_code_that_cannot_be_written_is_copied_to_where_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, user = tmp_path / "image", tmp_path / "user"
    for folder in (image / "room", user):
        folder.mkdir(parents=True)
    (image / "room/scan.nbi").write_text("code")
    monkeypatch.setattr(compiled, "_candidates", lambda _: iter([image, user]))
    monkeypatch.setattr(compiled, "_is_writable", lambda folder: folder != image)
    for _ in range(2):
        assert compiled._folder() == user
        assert (user / "room/scan.nbi").read_text() == "code"
    monkeypatch.setattr(compiled, "_is_writable", lambda _: False)
    with pytest.raises(ImportError, match="can be written"):
        compiled._folder()


AT_THE_END_OF_MEMORY = """
import ctypes, mmap
import numpy as np
from tests.fuzz.near import columns, messages
from slackwater.formats.messages import Messages
from slackwater.formats.scan.plan import UnsupportedSpec
from slackwater.formats.scan.scanner import Scanner

page = mmap.PAGESIZE
memory = mmap.mmap(-1, 3 * page)
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.mprotect(ctypes.c_void_p(start + 2 * page), ctypes.c_size_t(page), 0) == 0
end = start + 2 * page
read = {messages: 0, columns: 0}
for seed in range(40):
    form = (messages, columns)[seed // 20]
    batch = form(seed)
    try:
        scanner = Scanner(batch.spec)
    except UnsupportedSpec:
        continue  # of the reader in Python
    for message in batch.messages[:300]:
        for size in {len(message), len(message) * 2 // 3, 5} - {0}:
            if size > min(len(message), 2 * page):
                continue
            ctypes.memmove(end - size, message, size)
            one = Messages(np.array([end - size]), np.array([end]))
            scanned = scanner.scan(one) if form is messages else scanner.scan_columns(one, 1_000)
            read[form] += 1 - len(scanned.left)
print(*read.values())
"""


def test_no_byte_behind_a_message_is_read() -> None:
    """Each message, and pieces of it, end at the end of mapped memory."""
    done = run(AT_THE_END_OF_MEMORY)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert min(map(int, done.stdout.split())) > 500


def run(source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", source, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_scanner_is_not_copied() -> None:
    """The addresses in a copy would be those of the original, which may be gone."""
    with pytest.raises(TypeError, match="create another one"):
        pickle.dumps(scanner())


# Keys.


@given(st.lists(st.text(min_size=1, max_size=40), max_size=200))
def test_a_key_has_one_code_and_a_code_one_key(texts: list[str]) -> None:
    keys = Keys()
    codes = [keys.code(text) for text in texts]
    assert [keys.texts[code] for code in codes] == texts
    assert sorted(set(codes)) == list(range(len(keys.texts)))


def test_keys_that_differ_in_their_high_bits_have_hashes_of_their_own() -> None:
    """A product of 64 bits loses the high bits of a word, so such keys were easy to choose."""
    parts = "0000000000000000", "0000000p000p000p"
    names = ["".join(choice) for choice in product(parts, repeat=10)]
    keys = Keys()
    for name in names:
        keys.code(name)
    assert len(set(keys._hashes[: len(names)].tolist())) == len(names)


def test_the_table_grows_with_its_keys_and_keeps_their_codes() -> None:
    read = scanner()
    names = [f"{i:x}" * (1 + i % 30) for i in range(30_000)]
    rows = [b'{"k":"%s","at":1,"t":1}' % name.encode() for name in names]
    first = read.scan(Messages.of(rows))
    assert [read.texts[code] for code in first.key_index.tolist()] == names
    stored = sum(map(len, set(names)))
    assert stored <= len(read._keys._bytes) <= 2 * stored + 256 * 1024
    again = read.scan(Messages.of(rows[::-1]))
    np.testing.assert_array_equal(again.key_index, first.key_index[::-1])


def test_the_table_grows_inside_a_message_of_columns() -> None:
    read = scanner()
    names = [f"key-{i}" for i in range(30_000)]
    row = json.dumps({"k": names, "at": [1] * len(names)}).encode()
    for _ in range(2):
        found = read.scan_columns(Messages.of([row, row]), len(names))
        assert [read.texts[code] for code in found.key_index.tolist()] == 2 * names


def test_a_key_longer_than_all_room_is_stored() -> None:
    long = "k" * 65_536
    rows = [b'{"k":"%s%d","at":1,"t":1}' % (long[:65_530].encode(), i) for i in range(20)]
    read = scanner()
    found = read.scan(Messages.of(rows))
    assert [read.texts[code][-1] for code in found.key_index.tolist()] == [
        str(i)[-1] for i in range(20)
    ]


def test_more_keys_than_the_limit_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slackwater.formats.scan.keys.KEYS_MAX", 100)
    assert KEYS_MAX == 1_000_000
    reader = JsonReader(SPEC)
    parts = [
        reader.parse([MESSAGE % (1_000 * part + i, i, b"1") for i in range(60)])
        for part in range(4)
    ]
    for part, parsed in enumerate(parts):
        assert len(parsed.keys) <= 120
        names = [parsed.keys[i] for i in parsed.key_index.tolist()]
        assert names == [f"m{1_000 * part + i}" for i in range(60)]
