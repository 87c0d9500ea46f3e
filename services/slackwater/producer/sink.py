"""The interface through which a producer delivers batches, and its errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from slackwater.model.errors import SlackwaterError

Format = Literal["json", "json-array", "json-columns"]
"""Format of a topic's messages."""


class ProducerError(SlackwaterError):
    """Raised for readings that are not accepted and would not be after a retry.

    ``response`` is the server's response, if there is one.
    """

    def __init__(self, message: str, response: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.response = dict(response or {})


class TryAgain(Exception):
    """Raised by a sink if the delivery must be retried, at the earliest after ``after_s``."""

    def __init__(self, reason: str, after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.after_s = after_s


@dataclass(frozen=True, slots=True)
class Delivery:
    """A batch of readings. ``key`` identifies it, so that a repeated delivery counts once.

    ``position`` is the number of readings that are acknowledged once this batch is; None for a
    batch with an id from the caller.
    """

    table: Any
    key: str
    position: int | None


class Sink(Protocol):
    """Delivers batches, one at a time."""

    def deliver(self, batch: Delivery) -> Mapping[str, int]:
        """Deliver a batch and return the counts; raises ``TryAgain`` or ``ProducerError``."""
        ...

    def close(self) -> None:
        """Release connections."""
        ...
