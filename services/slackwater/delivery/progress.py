"""The state of one rule for one key: two counts, and at most two alerts.

```
                 for rows in a row                        a row that is false
    inactive ──► pending ──► firing ─────────────────────────────────────────► ended
                        └──► firing, tentative ── its window is exact ──► confirmed, withdrawn
```

As the results have a stable and a live line, so does a rule. The *exact* count takes exact rows
only. With ``act`` the *live* count goes on from it at the fork, with tentative rows. When it
reaches ``for`` and no alert stands, a tentative alert begins.

A tentative row may begin an alert and never ends one: what lacks a source is no all-clear. So at
most one tentative alert stands for each key, and it stands until its own window is exact. Then it
ends: ``confirmed`` if the exact line fires there too, else ``withdrawn``. The memory of a key does
not grow with the length of a failure.

Rejected: to keep the tentative rows in force, and to compute the live count again after each UNDO.
A failure of hours would fill the memory, and such an alert says no more.

A row whose condition is NULL changes nothing, and neither does a window without a row of the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from slackwater.delivery.records import AlertState, AlertValues, Firing


@dataclass(frozen=True, slots=True)
class AlertChange:
    """What happened to an alert; ``exact`` are the exact values of a tentative one."""

    state: AlertState
    began: Firing
    exact: AlertValues | None = None


@dataclass(frozen=True, slots=True)
class KeyProgress:
    """The state of a rule for a key. ``live_run``: None while it is the exact count."""

    exact_run: int = 0
    firing: Firing | None = None
    live_run: int | None = None
    tentative: Firing | None = None

    def to_json(self) -> dict[str, Any] | None:
        """Return plain JSON values; None at the beginning."""
        if self == KeyProgress():
            return None
        firing, tentative = self.firing, self.tentative
        return {
            "exact_run": self.exact_run,
            "firing": None if firing is None else firing.to_json(),
            "live_run": self.live_run,
            "tentative": None if tentative is None else tentative.to_json(),
        }

    @classmethod
    def from_json(cls, of: Mapping[str, Any]) -> KeyProgress:
        """The inverse of ``to_json``."""
        firing, tentative = of["firing"], of["tentative"]
        return cls(
            of["exact_run"],
            None if firing is None else Firing.from_json(firing),
            of["live_run"],
            None if tentative is None else Firing.from_json(tentative),
        )

    def stays_exact(self, windows: int, *, is_true: bool) -> bool:
        """Whether an exact row changes nothing."""
        if is_true:
            return self.firing is not None and self.exact_run == windows
        return self.firing is None and not self.exact_run

    def stays_live(self, windows: int, *, is_true: bool) -> bool:
        """Whether a tentative row changes nothing."""
        stands = self.firing is not None or self.tentative is not None
        return self.live_run == windows and stands if is_true else self.live_run == 0

    def exact_row(
        self, windows: int, row: Firing, *, is_true: bool, is_forked: bool
    ) -> tuple[KeyProgress, AlertChange | None]:
        """Take an exact row; ``windows`` is the rule's ``for``, ``row`` what it would begin.

        ``is_forked``: tentative answers are in force, so the live count is one of its own.
        """
        run = min(self.exact_run + 1, windows) if is_true else 0
        live = self.exact_run if is_forked and self.live_run is None else self.live_run
        progress = replace(self, exact_run=run, live_run=live)
        if is_true and run == windows and self.firing is None:
            return replace(progress, firing=row), AlertChange("firing", row)
        if not is_true and self.firing is not None:
            return replace(progress, firing=None), AlertChange("ended", self.firing)
        return progress, None

    def tentative_row(
        self, windows: int, row: Firing, *, is_true: bool
    ) -> tuple[KeyProgress, AlertChange | None]:
        """Take a tentative row of a rule with ``act``."""
        before = self.exact_run if self.live_run is None else self.live_run
        run = min(before + 1, windows) if is_true else 0
        progress = replace(self, live_run=run)
        stands = self.firing is not None or self.tentative is not None
        if is_true and run == windows and not stands:
            return replace(progress, tentative=row), AlertChange("firing", row)
        return progress, None

    def judged(
        self, exact_to: int, exact: AlertValues | None
    ) -> tuple[KeyProgress, AlertChange | None]:
        """End the tentative alert if its window is exact: those up to the start ``exact_to`` are.

        ``exact``: the values of the exact row; None if there is none.
        """
        tentative = self.tentative
        if tentative is None or tentative.window_start > exact_to:
            return self, None
        state: AlertState = "withdrawn" if self.firing is None else "confirmed"
        return replace(self, tentative=None), AlertChange(state, tentative, exact)

    def joined(self) -> KeyProgress:
        """Return the state when no answer is tentative any more."""
        return self if self.live_run is None else replace(self, live_run=None)


def counted(before: KeyProgress, after: KeyProgress, row: Firing) -> AlertChange | None:
    """Return the change that keeps the counts if they changed; None if they did not."""
    if (before.exact_run, before.live_run) == (after.exact_run, after.live_run):
        return None
    return AlertChange("pending" if after.exact_run or after.live_run else "inactive", row)
