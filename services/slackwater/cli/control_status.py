"""The controllers' part of ``slackwater status``; its connections stay between refreshes."""

from __future__ import annotations

import asyncio
from typing import Final

from slackwater.cli.controls import Reach
from slackwater.status.asking import ControllersAsked
from slackwater.status.overview import Overview, overview_of

LOCAL: Final = "that of `slackwater up`"
"""Shown in place of an address while the controller of `up` does not run."""


class Controls:
    """Connections to controllers while entered; without ``reach`` there is nothing to show."""

    def __init__(self, reach: Reach | None = None) -> None:
        self._reach = reach
        self._asked: ControllersAsked | None = None
        self._runner: asyncio.Runner | None = None

    def __enter__(self) -> Controls:
        if self._reach is not None:
            self._runner = asyncio.Runner()
            self._asked = self._reach.all("status")
        return self

    def __exit__(self, *_: object) -> None:
        if self._runner is not None and self._asked is not None:
            self._runner.run(self._asked.close())
            self._runner.close()
        self._runner = self._asked = None

    def look(self) -> Overview | None:
        """Return what the controllers report now; None if no controller is known."""
        if self._reach is None or self._runner is None or self._asked is None:
            return None
        if not self._reach.addresses:
            return overview_of({LOCAL: self._reach.advice}, has_nodes=False)
        answers = self._runner.run(self._asked.ask())
        return overview_of(answers, has_nodes=self._reach.has_nodes)


NO_CONTROLS: Final = Controls()
