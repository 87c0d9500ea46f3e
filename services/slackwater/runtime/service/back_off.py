"""Decisions of supervision: the back-off of restarts, and the processes that a name matches. Pure.

The supervisor (for processes), a proxy (for streams) and a host (for fragments) use the back-off.
"""

from __future__ import annotations

from collections.abc import Iterable

from slackwater.model.errors import UsageError
from slackwater.model.names import is_within


class BackOff:
    """Exponential back-off between restarts.

    A death later than ``window_s`` after the previous one is followed by a restart at once. Each
    further death within ``window_s`` of the previous one doubles the wait, from ``first_s`` up to
    ``wait_s_max``. Restarts never end, since a broker or a disk may become available again.
    """

    def __init__(
        self, *, window_s: float = 10.0, first_s: float = 0.5, wait_s_max: float = 8.0
    ) -> None:
        assert 0 < first_s <= wait_s_max < window_s, "the longest wait must not reset the back-off"
        self._window_s, self._first_s, self._wait_s_max = window_s, first_s, wait_s_max
        self._died_s: float | None = None
        self._in_a_row = 0

    def after_death(self, now_s: float) -> float:
        """Record a death; returns the seconds to wait before the restart."""
        again = self._died_s is not None and now_s - self._died_s <= self._window_s
        self._in_a_row = self._in_a_row + 1 if again else 0
        self._died_s = now_s
        if self._in_a_row == 0:
            return 0.0
        # The exponent is bounded too: a process may die for weeks.
        return min(self._first_s * 2.0 ** min(self._in_a_row - 1, 30), self._wait_s_max)


def matching(target: str, names: Iterable[str]) -> list[str]:
    """Return the processes that the target of a fault names.

    That is the process of this name, else all whose names begin with its components: ``root/q.1``
    names ``root/q.1.a`` and ``root/q.1.b`` and not ``root/q.10``. A kind (``orderer``,
    ``orderer/*``) names all processes of the kind, or the process whose name is that of the kind
    (``proxy``), if there is one. Raises ``UsageError`` if no process matches.
    """
    names, target = sorted(names), target.removesuffix("/*").removesuffix("/")
    if target in names:
        return [target]
    found = [name for name in names if is_within(name, target)]
    if not found:
        raise UsageError(f"there is no process {target}; choose among {', '.join(names)}")
    return found
