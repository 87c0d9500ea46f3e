"""``audit --input``: each reading of a file is in the log, in quarantine, or lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support.memory import MemoryBroker

from slackwater.cli.audit_input import audit_input, check_inputs, print_account
from slackwater.codec import encode_source
from slackwater.judge.accounted import InputAccount
from slackwater.model.deployment import (
    Deployment,
    FieldSpec,
    HttpInputSpec,
    KeySpec,
    StreamSpec,
    TimeSpec,
)
from slackwater.model.errors import UsageError
from slackwater.model.names import UNPREFIXED
from slackwater.model.records import Kind, SourceColumns, SourceRecord
from slackwater.proxy.quarantine import QuarantineEntry, to_json

S = 1_000_000
SPEC = StreamSpec(
    "room",
    KeySpec(column="k"),
    TimeSpec(("t",), unit="s"),
    (FieldSpec("x", "x"), FieldSpec("y", "y")),
    disorder_us=S,
)
LOG, QUARANTINE = UNPREFIXED.source("room"), UNPREFIXED.quarantine("room")
FILE = "t,k,x,y\n1,a,1.5,\n2,b,2.5,7\n3,a,3.5,8\n9,a,9,9\n4,b,4,4\n10,c,bad,1\n"
"""Five readings, of which the last one is late, and a malformed row."""
LoggedRow = tuple[int, str, float, float]
ROWS: tuple[LoggedRow, ...] = (
    (1, "a", 1.5, np.nan),
    (2, "b", 2.5, 7),
    (3, "a", 3.5, 8),
    (9, "a", 9, 9),
)
LATE = QuarantineEntry("6", "late", 4 * S, "", "4,b,4,4")
BAD = QuarantineEntry("7", "malformed", 10 * S, "field x", "10,c,bad,1")


def insertion(first_id: int, boundary_s: int, *readings: LoggedRow, inc: int = 0) -> SourceRecord:
    keys = sorted({key for _, key, _, _ in readings})
    columns = SourceColumns(
        np.array([t * S for t, *_ in readings], np.int64),
        np.array([keys.index(key) for _, key, _, _ in readings], np.int32),
        keys,
        ("x", "y"),
        tuple(np.array([r[i] for r in readings], np.float64) for i in (2, 3)),
    )
    times = [t * S for t, *_ in readings]
    last = first_id + len(readings) - 1
    return SourceRecord(
        Kind.INSERTION, "room", inc, first_id, last, boundary_s * S, min(times), max(times),
        columns=columns,
    )  # fmt: skip


def audited(
    folder: Path, records: list[SourceRecord], entries: list[QuarantineEntry], cut: int = 0
) -> InputAccount:
    broker = MemoryBroker()
    for topic in (LOG, QUARANTINE):
        broker.create_topic(topic)
    writer = broker.writer(pytest.fail, in_flight_bytes_max=1 << 20)
    writer.append(LOG, 0, encode_source(SourceRecord(Kind.START, "room", 0, 0, -1, 0, 0, 0)))
    for record in records:
        writer.append(LOG, 0, encode_source(record))
    for entry in entries:
        writer.append(QUARANTINE, 0, to_json("room", entry, 0))
    if cut:
        broker.delete_records({(LOG, 0): cut})
    path = folder / "room.csv"
    path.write_text(FILE)
    return audit_input(broker, SPEC, path)


def test_every_reading_is_accounted_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [insertion(0, 1, *ROWS[:2]), insertion(2, 8, *ROWS[2:])]
    account = audited(tmp_path, records, [LATE, BAD, BAD])
    assert account == InputAccount(5, 4, 1, 0, 0, 1, 1)
    assert account.ok
    print_account("room", tmp_path / "room.csv", account)
    assert "5 readings" in capsys.readouterr().out


def test_a_reading_that_is_not_there_is_lost(tmp_path: Path) -> None:
    account = audited(tmp_path, [insertion(0, 1, *ROWS[:2]), insertion(2, 8, ROWS[3])], [BAD])
    assert (account.logged, account.quarantined, account.lost) == (3, 0, 2)
    assert not account.ok
    assert account.examples == (
        "1970-01-01T00:00:03Z a: 3.5, 8",
        "1970-01-01T00:00:04Z b: 4, 4",
    )


def test_a_reading_with_another_key_or_value_is_lost(tmp_path: Path) -> None:
    """An error of the proxy's reader, such as the second column of two."""
    shifted = [(1, "a", np.nan, 1.5), (2, "c", 2.5, 7), *ROWS[2:]]
    account = audited(tmp_path, [insertion(0, 8, *shifted)], [LATE, BAD])
    assert (account.lost, account.others) == (2, 2)


def test_a_reading_counts_as_often_as_it_is_there(tmp_path: Path) -> None:
    account = audited(tmp_path, [insertion(0, 8, *ROWS, ROWS[0])], [LATE, BAD])
    assert (account.logged, account.lost, account.others) == (4, 0, 1)


def test_a_malformed_row_that_is_not_in_quarantine_is_not_ok(tmp_path: Path) -> None:
    account = audited(tmp_path, [insertion(0, 8, *ROWS)], [LATE])
    assert (account.lost, account.malformed, account.malformed_quarantined) == (0, 1, 0)
    assert not account.ok


def test_a_record_that_readers_do_not_accept_does_not_count(tmp_path: Path) -> None:
    """The second record has ids that were written already; the third is below the watermark."""
    records = [insertion(0, 1, *ROWS[:2]), insertion(1, 8, *ROWS[2:]), insertion(2, 9, ROWS[3])]
    account = audited(tmp_path, [*records, insertion(3, 9, ROWS[2])], [LATE, BAD])
    assert (account.logged, account.lost) == (3, 1)


def test_of_a_truncated_log_the_readings_that_may_be_deleted_are_left_out(tmp_path: Path) -> None:
    records = [insertion(0, 1, *ROWS[:2]), insertion(2, 2, ROWS[2]), insertion(3, 8, ROWS[3])]
    account = audited(tmp_path, records, [LATE, BAD], cut=2)
    assert (account.readings, account.logged, account.lost) == (3, 2, 0)


def test_a_stream_that_reads_no_file_is_refused() -> None:
    deployment = Deployment(
        "data", {"room": SPEC, "web": replace(SPEC, name="web", http=HttpInputSpec())}, {}
    )
    check_inputs(deployment, {"room": Path("a.csv")})
    with pytest.raises(UsageError, match="stream web is not read from files"):
        check_inputs(deployment, {"web": Path("a.csv")})
    with pytest.raises(UsageError, match="no stream hall, only room, web"):
        check_inputs(deployment, {"hall": Path("a.csv")})
