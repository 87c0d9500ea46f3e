"""The deltas that a copy of a root holds undecoded while another copy answers (Flux, section 5.1).

In Flux the secondary computes what the primary does, and drops its output when that is
acknowledged. Here the acknowledgement is a state record, and it has the positions from which a root
continues that starts now (rule-23). So of windows that are answered soon the secondary need compute
nothing: to *hold* is to park the cursors of all stable deltas (rule-12) without a wish to read
them. At each state record the cursors go on to its positions, and what lies before S is never read.
To take over, the copy reads what is left, as a root does that starts at this record. The bytes are
in the memory of the host meanwhile (``runtime.logs.recent``).

What a copy has read before it holds stays: where its frontier is not before S, its cursors are not
before the positions in the record. The live logs are always read.

``protocols.flux.holding`` decides when a copy holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from slackwater.model.records import RootState
from slackwater.protocols.common.inputs import Inputs
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.soutput.config import DeltaLog
from slackwater.protocols.dpc.soutput.decision import Child
from slackwater.protocols.dpc.soutput.delta_cursor import DeltaCursor
from slackwater.protocols.dpc.soutput.heads import at_of


class Holding:
    """What a copy holds.

    Args:
        children: the children of its core.
        inputs: their logs.
        contiguous_seq: by log, the seq below which all have been read, by whichever copy.
    """

    def __init__(
        self,
        children: Sequence[Child],
        inputs: Inputs[DeltaLog, DeltaCursor],
        contiguous_seq: dict[DeltaLog, int],
    ) -> None:
        self._children = children
        self._inputs = inputs
        self._contiguous_seq = contiguous_seq
        self._logs = [log for log in contiguous_seq if log.line is LineName.STABLE]
        self.is_active = False
        """Whether the stable deltas are left unread."""

    def hold(self, state: RootState) -> None:
        """Leave the stable deltas unread that follow a state record, which has been adopted."""
        self.is_active = True
        for log in self._logs:
            for _, cursor in self._inputs.readers(log):
                cursor.attached = False
        self.skip_to(state)

    def skip_to(self, state: RootState) -> None:
        """Go on at the positions of a state record where the copy has not read to its S."""
        stable_from, logs = state.stable_from, {at_of(log): log for log in state.logs}
        for number, child in enumerate(self._children):
            if not self.is_active or child.stable.frontier.bucket_start >= stable_from:
                continue
            of_child = [logs[log] for log in self._logs if log.child == number]
            child.panes.skip_to(stable_from)
            child.stable.skip_to(stable_from, [log.stable for log in of_child])
            child.live.skip_to([log.live for log in of_child])
            for log in of_child:
                known = self._contiguous_seq[at_of(log)]
                self._contiguous_seq[at_of(log)] = max(known, log.contiguous_seq)

    def records_after(self, state: RootState) -> int:
        """Return how many records the copy would hold after it has adopted a state record."""
        stable_from, logs = state.stable_from, {at_of(log): log for log in state.logs}
        return sum(
            self._unread(log, logs[log].stable.offset)
            if self._children[log.child].stable.frontier.bucket_start < stable_from
            else self._unread(log, self._inputs.stable(log).offset)
            for log in self._logs
        )

    @property
    def records(self) -> int:
        """Number of records that the copy holds."""
        return sum(self._unread(log, self._inputs.stable(log).offset) for log in self._logs)

    def _unread(self, log: DeltaLog, offset: int) -> int:
        return max(self._inputs.position(log) - offset, 0)

    def read(self) -> None:
        """Read what is held, and what follows."""
        if not self.is_active:
            return
        self.is_active = False
        for log in self._logs:
            for line, _ in self._inputs.readers(log):
                self._inputs.attach(line, log)

    def end(self) -> None:
        """Hold no more: the copy is to answer. It is suppressed until it has read what is there."""
        self.read()
        self._inputs.suppress_to_positions()
