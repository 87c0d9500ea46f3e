"""Why a client reaches no broker: the last refusal that it reported, of TLS or of credentials.

A request of a client that is refused ends with "all brokers are down", which is the same for a
wrong password and for a broken link. The client reports the reason to its error callback alone.
"""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import KafkaError

REFUSALS: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})


class Refusals:
    """The last refusal of a client; ``config`` are settings for it, which call this object."""

    def __init__(self) -> None:
        self._last = ""

    @property
    def config(self) -> dict[str, Any]:
        """Settings of the client."""
        return {"error_cb": self._note}

    def _note(self, error: KafkaError) -> None:
        if error.code() in REFUSALS:
            self._last = str(error.str())

    def clear(self) -> None:
        """Forget it: the client was answered."""
        self._last = ""

    def why(self, otherwise: str) -> str:
        """Return the last refusal; without one, ``otherwise``."""
        return self._last or otherwise
