"""Where a producer delivers its batches, and how a delivery may fail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from slackwater.model.errors import SlackwaterError

Format = Literal["json", "json-columns"]
"""How a topic's messages are written."""


class ProducerError(SlackwaterError):
    """Readings that are not accepted, and that sending again would not change.

    ``response`` is what the server answered, where there is one.
    """

    def __init__(self, message: str, response: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.response = dict(response or {})


class TryAgain(Exception):
    """Raised by a sink whose delivery has to be repeated, not before ``after_s``."""

    def __init__(self, reason: str, after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.after_s = after_s


@dataclass(frozen=True, slots=True)
class Delivery:
    """Readings that are delivered together. ``key`` makes a repeated delivery count once.

    ``position`` is the number of readings that are acknowledged once this batch is; None for a
    batch under an id of the caller's own.
    """

    table: Any
    key: str
    position: int | None


class Sink(Protocol):
    """Delivers batches, one at a time."""

    def deliver(self, batch: Delivery) -> Mapping[str, int]:
        """Deliver a batch and return what was counted; ``TryAgain`` or ``ProducerError``."""
        ...

    def close(self) -> None:
        """Release connections."""
        ...
