"""Fetches a topic's messages continuously, or at cut points only.

A fetch ends as soon as there is a message. At a hundred messages per second the client therefore
sends a hundred fetches, although the input needs the messages only at the next cut point, four
times per second. Such a topic is *paused* between cut points. At a cut point it is resumed, and the
end offsets are requested: the messages up to there are read, and the topic is paused again. This
takes a twentieth of the fetches, and 1 ms more at the cut point.

An idle topic is not paused, since its fetches wait at the broker for a message, nor is one with so
many messages that they are read before the cut point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from slackwater.proxy.topic.client import NO_EPOCHS, Fetched, Notice, TopicClient

FETCH_WAIT_MS: Final = 500
"""Wait of a fetch without messages, for one partition. Messages end a fetch at once."""
FETCH_WAIT_SEVERAL_MS: Final = 100
"""The same for several partitions. The client has one fetch at a time, so a partition with a
backlog may wait for a fetch of those that have no messages."""
FETCH_WAIT_MARKERS_MS: Final = 20
"""The same for topics with transactions: an end offset after a transaction marker is reported only
after the full wait."""
PAUSED_US_MIN: Final = 100_000
"""Minimum time to the next cut point, below which a pause saves few fetches."""
PAUSED_MESSAGES_MIN: Final = 5
"""Minimum messages of an interval between cut points, below which fetches are few."""
PAUSED_MESSAGES_MAX: Final = 1_000
"""Maximum messages of an interval. They are fetched and parsed in a few milliseconds."""


class Fetching:
    """The client of a topic, paused between cut points where this saves fetches."""

    def __init__(self, opened: Callable[[int], TopicClient], partitions: int) -> None:
        """``opened`` returns a client with a fetch wait in ms; ``partitions``: their number."""
        self._opened = opened
        self._client = opened(FETCH_WAIT_MS if partitions == 1 else FETCH_WAIT_SEVERAL_MS)
        self._is_paused = False
        self._metadata_before = 0
        """Metadata responses of the client before this one."""
        self._messages = 0
        """Messages since the last cut point."""
        self.polls_for_markers = False
        """Whether the client has the short fetch wait for topics with transactions."""

    def assign(self, positions: Mapping[int, int], epochs: Mapping[int, int] = NO_EPOCHS) -> None:
        """Fetch these partitions from these offsets; see ``TopicClient.assign``."""
        self._client.assign(positions, epochs)
        self._is_paused = False

    def poll_for_markers(
        self, positions: Mapping[int, int], epochs: Mapping[int, int] = NO_EPOCHS
    ) -> None:
        """Reopen the client with the fetch wait for topics with transactions."""
        self._metadata_before = self.metadata_count() + 1
        self._client.close()
        self._client, self.polls_for_markers = self._opened(FETCH_WAIT_MARKERS_MS), True
        self.assign(positions, epochs)

    def read(self, wait_s: float) -> Sequence[Fetched | Notice]:
        """Return fetched messages and notices; see ``TopicClient.read``."""
        found = () if self._is_paused else self._client.read(wait_s)
        self._messages += sum(len(one.offsets) for one in found if isinstance(one, Fetched))
        return found

    def release(self) -> None:
        """Release the memory of the last read."""
        self._client.release()

    def metadata_count(self) -> int:
        """Return how many metadata responses have been received; another client is one more."""
        return self._metadata_before + self._client.metadata_count()

    @property
    def is_paused(self) -> bool:
        """Whether nothing is fetched until ``resume``."""
        return self._is_paused

    def resume(self, timeout_s: float) -> Mapping[int, int] | None:
        """Continue to fetch; return the partitions' end offsets, or None without a response."""
        self._is_paused = False
        return self._client.resume(timeout_s)

    def pause_until(self, now_us: int, cut_us: int) -> None:
        """Pause, if this saves fetches until the next cut point; all up to now has been read."""
        messages, self._messages = self._messages, 0
        if (
            PAUSED_MESSAGES_MIN <= messages <= PAUSED_MESSAGES_MAX
            and cut_us - now_us >= PAUSED_US_MIN
        ):
            self._client.pause()
            self._is_paused = True

    def close(self) -> None:
        """Close the client."""
        self._client.close()
