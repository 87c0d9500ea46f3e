"""Requests of a session's procedures: values answered by the host or the simulator.

A *procedure* is a generator. It yields requests, each is answered by what its docstring says, and
its value is what it returns in the end. A host answers a request in a thread and goes on with the
generator in its event loop, so that a session is only ever touched by one thread; the simulator
answers in virtual time. A request that the broker does not answer in ``timeout_us`` is thrown into
the generator as a ``SlackwaterError``: a procedure that can do without the answer catches it, any
other one ends, and its session with it.
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
"""A record of an ordered log, behind its offset."""

TIMEOUT_US: Final = 30_000_000
PROBE_TIMEOUT_US: Final = 5_000_000
"""For what a running session looks up beside its work: it can ask again."""


def fits_any(_: State) -> bool:
    """Every state record that can be decoded."""
    return True


@dataclass(frozen=True, slots=True)
class Beginnings:
    """The first offset that each log still holds: ``dict[Log, int]``."""

    logs: tuple[Log, ...]
    timeout_us: int = TIMEOUT_US


@dataclass(frozen=True, slots=True)
class Ends:
    """Where each log ends now: ``dict[Log, int]``."""

    logs: tuple[Log, ...]
    isolation: Isolation = "read_uncommitted"
    timeout_us: int = TIMEOUT_US


@dataclass(frozen=True, slots=True)
class ReadStates:
    """The newest state record that ``fits``, by fragment of the query: ``dict[str, State]``."""

    query: str
    parts: int
    fits: Callable[[State], bool] = fits_any
    timeout_us: int = TIMEOUT_US


@dataclass(frozen=True, slots=True)
class ReadRootState:
    """The newest committed state record of a part's root that ``fits``: ``RootState | None``.

    Whatever the roots of other parts are in the middle of (trace-18).
    """

    query: str
    part: int
    fits: Callable[[State], bool] = fits_any
    timeout_us: int = TIMEOUT_US


@dataclass(frozen=True, slots=True)
class Fence:
    """End what another copy of this root has open, and its ability to commit (rule-27): ``None``.

    What is read from now on, no older copy changes any more.
    """

    timeout_us: int = TIMEOUT_US


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """The same, and from now on ``Commit`` is possible: ``None``."""

    timeout_us: int = TIMEOUT_US


@dataclass(frozen=True, slots=True)
class ReadOrdered:
    """The records of an ordered log in [start, end): ``list[Ordered]``, without what is none.

    None: from the beginning, to the end at the time of the request.
    """

    log: Log
    start: int | None = None
    end: int | None = None
    timeout_us: int = TIMEOUT_US


@dataclass(frozen=True, slots=True)
class BeginIncarnation:
    """Take an ordered log over (rule-6): the offset of START, an ``int``.

    The log is read from ``read_from`` to its end, ``make_start`` makes START of what was found,
    START is appended and its delivery awaited, and the log is read on up to it.
    """

    log: Log
    read_from: int
    make_start: Callable[[Sequence[Ordered]], OrderedRecord]
    timeout_us: int = 2 * TIMEOUT_US


@dataclass(frozen=True, slots=True)
class FindIncarnation:
    """Has this incarnation begun, is its START in the log (decision 51)? ``bool``."""

    log: Log
    inc: int
    timeout_us: int = PROBE_TIMEOUT_US


@dataclass(frozen=True, slots=True)
class StoreState:
    """Write an orderer's state record, and wait until it is delivered: ``None``."""

    query: str
    state: OrdererState
    timeout_us: int = TIMEOUT_US


Request: TypeAlias = (
    Beginnings
    | Ends
    | ReadStates
    | ReadRootState
    | ReadOrdered
    | BeginIncarnation
    | FindIncarnation
    | StoreState
    | Fence
    | OpenTransactions
)
T = TypeVar("T")
Procedure: TypeAlias = Generator[Request, Any, T]
