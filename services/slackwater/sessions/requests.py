"""Requests of a session's procedures: values answered by the host or the simulator.

A *procedure* is a generator. It yields requests and receives the answers; its return value is its
result. The type of each answer is given in the request's docstring. A host answers a request in a
thread and resumes the generator in its event loop, so that only one thread uses a session; the
simulator answers in virtual time. A request that is not answered within ``timeout_us`` raises a
``SlackwaterError`` in the generator. A procedure that does not need the answer catches it.
Otherwise the procedure and its session end.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypeVar

from slackwater.model.records import OrderedRecord, OrdererState, RootState

Log: TypeAlias = tuple[str, int]
"""One partition of a topic."""

Isolation = Literal["read_committed", "read_uncommitted"]
State: TypeAlias = OrdererState | RootState
Ordered: TypeAlias = tuple[int, OrderedRecord]
"""The offset of a record of an ordered log, and the record."""

TIMEOUT_US: Final = 30_000_000
PROBE_TIMEOUT_US: Final = 5_000_000
"""For requests that a running session can repeat."""


def fits_any(_: State) -> bool:
    """Accept every state record that can be decoded."""
    return True


@dataclass(frozen=True, slots=True)
class Beginnings:
    """Fetch the first offset that each log still holds. Answer: ``dict[Log, int]``."""

    logs: tuple[Log, ...]
    timeout_us: int = TIMEOUT_US


@dataclass(frozen=True, slots=True)
class Ends:
    """Fetch the current end offset of each log. Answer: ``dict[Log, int]``."""

    logs: tuple[Log, ...]
    isolation: Isolation = "read_uncommitted"
    timeout_us: int = TIMEOUT_US


@dataclass(frozen=True, slots=True)
class AwaitRead:
    """Wait until the live consumer has passed on all records of a log below ``offset``.

    Answer: ``None``.
    """

    log: Log
    offset: int
    timeout_us: int = PROBE_TIMEOUT_US


@dataclass(frozen=True, slots=True)
class ReadStates:
    """Read the newest state record that ``fits`` of each fragment of a query.

    Answer: ``dict[str, State]`` by fragment.
    """

    query: str
    parts: int
    fits: Callable[[State], bool] = fits_any
    timeout_us: int = TIMEOUT_US


@dataclass(frozen=True, slots=True)
class ReadOrdererStates:
    """Read state records of other queries' orderers that read these source logs.

    Of each orderer the newest record is read whose frontier is not above ``frontier_max`` (event
    time, us). Some may be missing. Answer: ``list[OrdererState]``.
    """

    logs: tuple[str, ...]
    frontier_max: int
    timeout_us: int = PROBE_TIMEOUT_US


@dataclass(frozen=True, slots=True)
class FindReaders:
    """Find the queries that were applied at run time and read this query's children (trace-50).

    Answer: ``list[str]``, their names; ``query`` itself if there is none.
    """

    query: str
    timeout_us: int = TIMEOUT_US


@dataclass(frozen=True, slots=True)
class ReadPart:
    """Read the newest committed state records of a part's roots, of all generations of the query.

    Open transactions of other parts' roots do not hide them (trace-18). ``fits`` applies to the
    record of the query's own root, and an older record is read in place of one that does not fit.
    Answer: ``tuple[RootState | None, Mapping[int, RootState]]``, the own record, and those of the
    other generations by number.
    """

    query: str
    part: int
    fits: Callable[[State], bool] = fits_any
    timeout_us: int = TIMEOUT_US


@dataclass(frozen=True, slots=True)
class PrepareTransactions:
    """Connect to Kafka for a later ``OpenTransactions``, without a fence. Answer: ``None``."""

    timeout_us: int = TIMEOUT_US


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """Fence older copies of this root, and enable ``Commit`` (rule-27).

    Their open transaction is aborted, and later ones are rejected: what is read afterwards cannot
    be changed by an older copy. Answer: ``None``.
    """

    timeout_us: int = TIMEOUT_US


@dataclass(frozen=True, slots=True)
class ClaimPart:
    """Commit a root's state record without answers; a copy placed earlier then stays down.

    Answer: ``None``. Transactions must be open.
    """

    state: RootState
    timeout_us: int = TIMEOUT_US


@dataclass(frozen=True, slots=True)
class ReadOrdered:
    """Read the records of an ordered log in [start, end); records that do not decode are skipped.

    ``start`` defaults to the beginning of the log, ``end`` to its end at the time of the request.
    Answer: ``list[Ordered]``.
    """

    log: Log
    start: int | None = None
    end: int | None = None
    timeout_us: int = TIMEOUT_US


@dataclass(frozen=True, slots=True)
class BeginIncarnation:
    """Take over an ordered log (rule-6).

    The host reads the log from ``read_from`` to its end, calls ``make_start`` with the records,
    appends the START that it returns, waits for its delivery, and reads the log up to it.
    Answer: the offset of START, ``int``.
    """

    log: Log
    read_from: int
    make_start: Callable[[Sequence[Ordered]], OrderedRecord]
    timeout_us: int = 2 * TIMEOUT_US


@dataclass(frozen=True, slots=True)
class FindIncarnation:
    """Check whether a log holds the START of this incarnation (decision 51). Answer: ``bool``."""

    log: Log
    inc: int
    timeout_us: int = PROBE_TIMEOUT_US


@dataclass(frozen=True, slots=True)
class ReadLatest:
    """Read the last committed record of each key of a compacted log. Answer: by key, the value."""

    log: Log
    timeout_us: int = TIMEOUT_US


@dataclass(frozen=True, slots=True)
class ReadCopies:
    """Read the own records of a part's copies: of each the one with the greatest number.

    Open transactions in their log do not hide them. Answer: ``dict[str, RootState]`` by name.
    """

    query: str
    part: int
    timeout_us: int = TIMEOUT_US


@dataclass(frozen=True, slots=True)
class ReadPanes:
    """Read what the roots of a part have stored (``model.heads``). Answer: ``StoredState``.

    ``keys_only``: without the pieces of panes. Records that do not decode are counted and skipped.
    """

    query: str
    part: int
    keys_only: bool = False
    timeout_us: int = TIMEOUT_US


@dataclass(frozen=True, slots=True)
class ReadMerged:
    """Read the last records of a log of merged panes, at most ``records_max``.

    Answer: ``list[MergedRecord]``; records that do not decode are skipped.
    """

    log: Log
    records_max: int
    timeout_us: int = TIMEOUT_US


@dataclass(frozen=True, slots=True)
class FindDefinition:
    """Find the definition of a query in the registry. Answer: the definition, or None."""

    query: str
    timeout_us: int = TIMEOUT_US


@dataclass(frozen=True, slots=True)
class AtCentre:
    """Make a request of the centre's Kafka instead of the site's; its answer is the answer."""

    request: FindDefinition | ReadMerged

    @property
    def timeout_us(self) -> int:
        """That of the request."""
        return self.request.timeout_us


@dataclass(frozen=True, slots=True)
class OtherTurns:
    """Let the other sessions of the host take turns. Answer: ``None``."""

    timeout_us: int = TIMEOUT_US


@dataclass(frozen=True, slots=True)
class StoreState:
    """Write a state record outside transactions and wait for its delivery. Answer: ``None``."""

    query: str
    state: State
    part: int = 0
    timeout_us: int = TIMEOUT_US


Request: TypeAlias = (
    Beginnings
    | Ends
    | AwaitRead
    | ReadStates
    | ReadOrdererStates
    | FindReaders
    | ReadPart
    | ReadCopies
    | ReadPanes
    | ReadMerged
    | FindDefinition
    | AtCentre
    | OtherTurns
    | ReadLatest
    | ReadOrdered
    | BeginIncarnation
    | FindIncarnation
    | StoreState
    | PrepareTransactions
    | OpenTransactions
    | ClaimPart
)
T = TypeVar("T")
Procedure: TypeAlias = Generator[Request, Any, T]
