"""guarantee-2, bounded: a first answer comes within X of the normal time, and never before it.

The guarantee does not apply while a stage has no working copy or a root is overloaded, nor until
such a copy has read its missing input. A skipped answer is a first answer of an overdue window. The
second part: if a failure ends, and its backlog is read, before X less the stages' margins, then it
causes no tentative result. This applies only if the clocks agree within the margin (trace-12).
With ``clock: data`` nothing is due while all sources are silent; a history has no bound.
"""

from __future__ import annotations

from tests.simulator.checkers.answers import GivenAnswer, Violation
from tests.simulator.checkers.facts import Facts

from slackwater.protocols.dpc.soutput.answers import GapNote


def check(facts: Facts) -> None:
    """Check that first answers are in time, not early, and tentative only for a reason."""
    if not facts.history.clocks_agree or facts.config.history_speed:
        return
    for part, answer in enumerate(facts.answers):
        _in_time(facts, part, answer)
        _for_a_reason(facts, part, answer)


def _in_time(facts: Facts, part: int, answers: list[GivenAnswer]) -> None:
    config, slack = facts.config, facts.slack_us
    answered_to = config.first_window
    # The policy ``suspend`` gives up the bound for fewer corrections (DPC, section 6.1).
    suspends = config.policy.stabilization == "suspend"
    for answer in answers:
        normal = facts.normal_time(config.grid.window_end(answer.window))
        earliest = facts.earliest(config.grid.window_end(answer.window))
        if not answer.stable and answer.at < earliest - config.margin_us:
            text = f"{facts.name(answer.window)} is tentative {earliest - answer.at} us early"
            raise Violation("bounded", answer.at, text)
        if answer.skipped and answer.at < normal + config.bound_us - config.margin_us:
            early = (normal + config.bound_us - answer.at) / 1e6
            text = f"{facts.name(answer.window)} is skipped, and could be in time for {early:.3f} s"
            raise Violation("bounded", answer.at, text)
        if answer.window < answered_to:
            continue
        answered_to = answer.window + config.slide_us
        is_late = answer.at > normal + config.bound_us + slack
        if is_late and not suspends and not _excused(facts, normal, answer.at):
            late = (answer.at - normal) / 1e6
            text = f"part {part}: {facts.name(answer.window)} answered after {late:.3f} s"
            raise Violation("bounded", answer.at, text)
    normal = facts.normal_time(config.grid.window_end(answered_to))
    owed_to = facts.owed_to
    if normal + config.bound_us + slack < owed_to and not (
        facts.is_deleted and (suspends or _excused(facts, normal, owed_to))
    ):
        text = f"part {part}: {facts.name(answered_to)} has no answer"
        raise Violation("bounded", owed_to, text)


def _excused(facts: Facts, normal: int, at: int) -> bool:
    """Return whether a stage had no copy at a time that can have delayed the answer."""
    grace = facts.grace_us
    return any(low <= at and high + grace >= normal for low, high in facts.history.unavailable)


def _for_a_reason(facts: Facts, part: int, answers: list[GivenAnswer]) -> None:
    """Check that the first tentative answer of an epoch follows a failure of sufficient length.

    Windows with lost readings are excluded: their gap is chosen last (decision 25).
    """
    config, epoch = facts.config, 0
    of_part = (c for c in facts.history.committed if c.part == part)
    notes = (e for c in of_part for e in c.transaction.effects if isinstance(e, GapNote))
    lost = {note.window_start for note in notes}
    masked_us = config.bound_us - config.stages * config.margin_us - facts.recovery_us
    long = [o for o in facts.outages if o.end - o.start >= masked_us]
    for answer in answers:
        if answer.stable or answer.epoch == epoch:
            continue
        epoch = answer.epoch
        normal = facts.normal_time(config.grid.window_end(answer.window))
        if answer.window in lost:
            continue
        if not any(o.start <= answer.at and o.end + facts.grace_after(o) >= normal for o in long):
            text = (
                f"part {part}: {facts.name(answer.window)} is tentative, misses {answer.missing}, "
            )
            text += f"and no failure near it was longer than {masked_us / 1e6:g} s"
            raise Violation("bounded", answer.at, text)
