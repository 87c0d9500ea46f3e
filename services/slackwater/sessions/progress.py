"""Finds where a root continues: at its own state record, or at that of an earlier generation.

All generations of a query write one sequence of results, so a part has one fence, and its roots'
state records are in one log. The root of a new generation fences the root of the earlier one and
continues its sequence: next seq, epoch, S and T are those of the earlier root. The positions in the
logs are not, since each generation has ordered logs and deltas of its own (rule-29).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from slackwater.model.errors import SupersededError
from slackwater.model.names import base_of, generation_name, generation_of
from slackwater.model.records import RootState
from slackwater.protocols.dpc.soutput.config import (
    RootConfig,
    continued_state,
    fits,
    initial_state,
    stays_down,
)
from slackwater.sessions.requests import TIMEOUT_US, Procedure, ReadPart


@dataclass(frozen=True, slots=True)
class PartProgress:
    """The progress of a part's answers, from its state records.

    Attributes:
        own: the record of this generation's root; None before its first transaction.
        others: the records of the other generations' roots, by generation.
    """

    own: RootState | None
    others: Mapping[int, RootState]

    def check(self, config: RootConfig) -> None:
        """Raise ``SupersededError`` if another copy or generation has answered (trace-40)."""
        of_this_copy = self.own is not None and self.own.copy == config.copy
        if of_this_copy and stays_down(self.own, config.placement, is_recorded=config.is_recorded):
            assert self.own is not None
            raise SupersededError(
                f"{config.fragment} has placement {self.own.placement}; "
                f"this copy has placement {config.placement} and stays down",
                config.placement,
            )
        latest = max(self.others, default=0)
        if latest > generation_of(config.query):
            later = generation_name(base_of(config.query), latest)
            raise SupersededError(
                f"query {later} has replaced {config.query}: {config.fragment} stays down",
                config.placement,
            )

    def needs_claim(self, config: RootConfig) -> bool:
        """True if a state record is needed before the first answer.

        It makes copies placed earlier stay down. The first copy of a part needs none.
        """
        if not config.is_recorded or not self.has_begun:
            return False
        return self.own is None or self.own.placement != config.placement

    @property
    def has_begun(self) -> bool:
        """True if a root of the part has committed a transaction."""
        return self.own is not None or bool(self.others)

    @property
    def latest(self) -> RootState | None:
        """The record of this generation's root, or of the latest earlier one; None without one."""
        if self.own is None and self.others:
            return self.others[max(self.others)]
        return self.own

    def state(self, config: RootConfig) -> RootState:
        """The state from which a root continues.

        Raises:
            SlackwaterError: this generation begins after the earlier one's answers end.
        """
        if self.own is not None:
            return self.own
        if self.others:
            return continued_state(config, self.others[max(self.others)])
        return initial_state(config)


def read_progress(config: RootConfig, timeout_us: int = TIMEOUT_US) -> Procedure[PartProgress]:
    """Read the progress of a part's answers."""
    request = ReadPart(config.query, config.part, partial(fits, config), timeout_us)
    own, others = yield request
    return PartProgress(own, others)
