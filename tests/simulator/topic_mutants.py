"""Mutants of topics that change while they are read (rule-30 to rule-32)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from tests.scenarios import test_r46_a_topic_that_is_another_one as another_one
from tests.scenarios import test_r47_a_partition_that_is_added as added
from tests.simulator.clock import MS, SECOND
from tests.simulator.config import WorldConfig
from tests.simulator.faults import Fault
from tests.simulator.mutation import Edit, Mutant
from tests.simulator.plans import Plan
from tests.simulator.readings import Habits
from tests.simulator.run import check_plan
from tests.support.proxy_world import World
from tests.unit.proxy.topic import test_shared_topic as shared

_partition = "slackwater.proxy.topic.partition"
_logs = "slackwater.proxy.topic.source_logs"
_session = "slackwater.sessions.orderer:OrdererSession"
_cursor = "slackwater.protocols.dpc.sunion.cursor:SourceCursor"
_recovery = "slackwater.protocols.dpc.sunion.recovery"
_own = "slackwater.runtime.service.owntopics"
_own_topics = "tests.scenarios.test_r48_a_topic_of_its_own_that_is_another_one"
_added = "tests.scenarios.test_r47_a_partition_that_is_added"


def on_another_topic(test: Callable[[another_one.Remade], None]) -> None:
    """Run a test of trace-46."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        world = World(Path(folder), spec=another_one.DECLARED)
        test(another_one.begun(another_one.Remade(world, patch)))


def on_a_topic(test: Callable[[Path, pytest.MonkeyPatch], None]) -> None:
    """Run a test of trace-46 that makes its own world."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        test(Path(folder), patch)


def truncation_reported(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Messages at offsets that were read before are new ones."""
    another_one.test_messages_at_offsets_that_were_read_before_a_truncation_are_read(
        folder, patch, 2, 0
    )


def truncated_unseen(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Messages have the offsets of truncated ones, and no proxy ran meanwhile."""
    another_one.test_a_truncation_while_no_proxy_runs_is_noticed_by_the_next_one(folder, patch, 9)


def begun_unread(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Messages are written and deleted before the first one is read."""
    another_one.test_the_place_where_a_stream_begins_is_recorded_before_anything_is_read(
        folder, patch, "beginning"
    )


def expired_at_an_added_one(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Messages of a new partition are deleted before a proxy sees it."""
    added.test_what_retention_deletes_of_a_new_partition_before_it_is_seen_is_a_gap(
        folder, patch, "beginning", has_read=True
    )


def added_before_the_first_reading(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """The same, of a stream that has read nothing."""
    added.test_what_retention_deletes_of_a_new_partition_before_it_is_seen_is_a_gap(
        folder, patch, "end", has_read=False
    )


def first_start_interrupted(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """The second log of a first start has START alone."""
    added.test_a_partition_of_an_interrupted_first_start_is_no_added_one(folder, patch, "end", 5)


def added_with_its_proxy(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Partitions and proxies are increased together."""
    shared.test_a_proxy_that_is_added_with_its_partition_begins_where_the_first_log_tells_of_it(
        folder, patch, 1_000
    )


def on_a_growing_topic(test: Callable[[added.Growing], None]) -> None:
    """Run a test of the proxy of trace-47."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        world = World(Path(folder), spec=added.DECLARED)
        test(added.begun(added.Growing(world, patch)))


_OBSERVED_LATER: Final = """\
    later = take_over(self.logs, context, self._watched)
    self._all = [partition for partition in self._all if partition.log not in later]
    self._partitions = [partition for partition in self._all if partition.is_present]
    logs = [(self._topic, p.number) for p in self._partitions]
    begins = context.transport.beginning_offsets(logs)
    ends = context.transport.end_offsets(logs, isolation="read_committed")
"""
_OBSERVED_FIRST: Final = "".join(
    [*_OBSERVED_LATER.splitlines(keepends=True)[3:], *_OBSERVED_LATER.splitlines(keepends=True)[:3]]
)
UNREAD: Final = ("at=2s pause proxy/s1 for 0.4s", "at=2.3s remake s1 for 0.001s by 2")
"""What was written between the two has never been read."""
BEGUN: Final = ("at=0.0003s pause proxy/s1 for 0.2s", "at=0.15s expire s1 by 3")
"""Nothing has been read when retention deletes what came after the beginning."""
ADDED_UNREAD: Final = (BEGUN[0], "at=0.02s grow s1 by 1", "at=0.15s expire s1 by 2")
"""Nothing has been read when a partition is added and loses messages."""
SECOND_AWAY: Final = (
    "at=0.0001s kill proxy/s1.1", "at=0.02s grow s1 by 2", "at=0.4s expire s1 by 2",
)  # fmt: skip
"""The second proxy of the topic has no record yet when partitions are added and lose messages."""
FIRST_AWAY: Final = ("at=1.95s kill proxy/s1", "at=2s grow s1 by 2")
"""The second proxy of the topic is the first one to see the partitions."""
UNSEEN: Final = ("at=2s kill proxy/s1", "at=2.002s unclean s1 for 0.001s by 12")
"""The log is longer than the position again when the next proxy begins."""


def plan_with_topic(*faults: str, partitions: int = 1, proxies: int = 1) -> Plan:
    """Return a plan with these faults, in which stream s1 reads a topic."""
    config = WorldConfig(
        window_us=300 * MS, slide_us=300 * MS, bound_us=400 * MS, margin_us=20 * MS, pace=0.3,
        habits=Habits(every_us=15 * MS, late_every=10, late_us=SECOND), topics={"s1": partitions},
        shares={} if proxies == 1 else {"s1": proxies},
    )  # fmt: skip
    return Plan(5, config, 4 * SECOND, tuple(map(Fault.parse, faults)))


def in_the_simulator(partitions: int, *faults: str) -> None:
    """Run such a plan, and check every guarantee."""
    check_plan(plan_with_topic(*faults, partitions=partitions))


def with_two_proxies(*faults: str) -> None:
    """Run such a plan with two partitions and two proxies, and check every guarantee."""
    check_plan(plan_with_topic(*faults, partitions=2, proxies=2))


_simulated = "tests.simulator.topic_mutants:in_the_simulator"
TOPIC_MUTANTS: Final = (
    Mutant(
        "simulated: a position has no id", "trace-46",
        (Edit(f"{_partition}:identity_of", 'f":{topic_id}" if topic_id else ""', '""'),),
        _simulated, (1, *UNREAD),
    ),
    Mutant(
        "simulated: a gap between two ids is not told", "trace-46",
        (Edit(f"{_partition}:begin_at", "max(UNKNOWN_READINGS, unread)", "0"),),
        _simulated, (1, *UNREAD),
    ),
    Mutant(
        "simulated: a gap that retention has made is not told", "trace-46",
        (Edit(f"{_partition}:begin_at", 'Beginning(beginning, 0, "deleted", beginning - offset)',
              'Beginning(beginning, 0, "deleted", 0)'),),
        _simulated, (1, UNREAD[0], "at=2.3s expire s1 by 3"),
    ),
    Mutant(
        "simulated: a gap of a partition that is gone is not told", "trace-46",
        (Edit("slackwater.proxy.topic.input:TopicInput.begin", "for partition in self._all:",
              "for partition in self._partitions:"),),
        _simulated, (3, *UNREAD),
    ),
    Mutant(
        "simulated: orderers take an added partition in at different times", "trace-47",
        (Edit(f"{_session}._lacks_logs", "name in self._config.coming", "False"),),
        _simulated, (1, "at=2s grow s1 by 1", "at=2.6s kill orderer/q.0.b"),
    ),
    Mutant(
        "simulated: the number of logs follows the topic down", "trace-47",
        (Edit(f"{_logs}:decided_partitions", "max(there, recorded or 0)", "there"),),
        _simulated, (3, "at=2s remake s1 for 0.001s by 1"),
    ),
    Mutant(
        "a position is used in a topic of another id", "trace-46",
        (Edit(f"{_partition}:identity_of", 'f":{topic_id}" if topic_id else ""', '""'),),
        "tests.simulator.topic_mutants:on_another_topic",
        (another_one.test_a_topic_that_was_made_again_is_read_from_its_beginning,),
    ),
    Mutant(
        "messages count although the topic may be another one", "trace-46",
        (Edit("slackwater.proxy.topic.input:TopicInput._read",
              "if found and not self._watched.is_confirmed", "if False"),),
        "tests.simulator.topic_mutants:on_another_topic",
        (another_one.test_messages_of_another_id_are_not_counted_before_the_topic_is_looked_at,),
    ),
    Mutant(
        "an old hint gives ids that have been used", "trace-15",
        (Edit("slackwater.proxy.sourcelog:SourceLog._read_from",
              'Contiguous(ANY if was_cut else hint["next_id"])', 'Contiguous(hint["next_id"])'),),
        "tests.simulator.topic_mutants:on_another_topic",
        (another_one.test_an_old_hint_neither_drops_nor_repeats_readings,),
    ),
    Mutant(
        "a hint's position counts for records behind deleted ones", "trace-15",
        (Edit("slackwater.protocols.dpc.source.scan:LogScan._go_on_behind_cut",
              "self.positions.pop(self.spool, None)", "pass"),),
        "tests.simulator.topic_mutants:on_another_topic",
        (another_one.test_an_old_hint_does_not_count_for_records_that_do_not_name_their_input,),
    ),
    Mutant(
        "the loss between two ids is not told", "trace-46",
        (Edit(f"{_partition}:begin_at", "max(UNKNOWN_READINGS, unread)", "0"),),
        "tests.simulator.topic_mutants:on_another_topic",
        (another_one.test_a_gap_is_told_also_if_the_process_ends_before_it_is_sent,),
    ),
    Mutant(
        "a gap ends at the watermark", "trace-46",
        (Edit(f"{_cursor}.offer", "self._affected_until(record), gap)", "self.boundary, gap)"),),
        "tests.simulator.topic_mutants:on_a_topic",
        (another_one.test_a_gap_reaches_to_the_last_reading_that_was_deleted,),
    ),
    Mutant(
        "a truncated topic is read on at its end", "trace-46",
        (Edit(f"{_partition}:begin_at", "truncated_at is not None", "False"),),
        "tests.simulator.topic_mutants:on_a_topic", (truncation_reported,),
    ),
    Mutant(
        "a truncation counts for what another writer has read since", "trace-46",
        (Edit(f"{_partition}:begin_at", "truncated.epoch == known.epoch", "True"),),
        "tests.simulator.topic_mutants:on_a_topic",
        (another_one.test_what_a_stopped_proxy_was_told_of_a_truncation_is_not_used_behind_its_successor,),
    ),
    Mutant(
        "messages that a truncation may have hidden are not told", "trace-46",
        (Edit(f"{_partition}:begin_at", '"truncated", UNKNOWN_READINGS', '"truncated", 0'),),
        "tests.simulator.topic_mutants:on_a_topic",
        (another_one.test_a_topic_that_ends_before_the_position_is_read_on_at_its_end,),
    ),
    Mutant(
        "the topic's end is observed before the earlier writer is superseded", "trace-46",
        (Edit("slackwater.proxy.topic.input:TopicInput.begin", _OBSERVED_LATER, _OBSERVED_FIRST),),
        "tests.simulator.topic_mutants:on_another_topic",
        (another_one.test_a_proxy_that_reads_on_until_it_is_superseded_has_truncated_nothing,),
    ),
    Mutant(
        "what a partition that the topic no longer has has lost is not told", "trace-46",
        (Edit("slackwater.proxy.topic.input:TopicInput.begin", "for partition in self._all:",
              "for partition in self._partitions:"),),
        "tests.simulator.topic_mutants:on_a_topic",
        (another_one.test_a_topic_with_fewer_partitions_leaves_their_logs_behind,),
    ),
    Mutant(
        "a position belongs to the topic that START names", "trace-46",
        (Edit("slackwater.protocols.dpc.source.scan:LogScan.see",
              "if record.spool != self.spool and record.spool:", "if False:"),),
        "tests.simulator.topic_mutants:on_another_topic",
        (another_one.test_a_topic_made_again_is_noticed_also_if_retention_has_deleted_start,),
    ),
    Mutant(
        "a position whose START retention has deleted is not used", "trace-46",
        (Edit(f"{_partition}:begin_at", 'found.setdefault(owner, found.pop(""))', "pass"),),
        "tests.simulator.topic_mutants:on_another_topic",
        (another_one.test_the_position_of_an_earlier_version_remains_without_start,),
    ),
    Mutant(
        "a topic that was made again unread is the same", "trace-46",
        (Edit(f"{_partition}:begin_at", "[*positions, *started, *read_ends]", "positions"),),
        "tests.simulator.topic_mutants:on_a_topic",
        (another_one.test_a_topic_made_again_before_a_record_reports_a_gap,),
    ),
    Mutant(
        "where a stream begins is known from its first reading only", "trace-46",
        (Edit(f"{_partition}:Partition.seek", "if found.is_first:", "if False:"),),
        "tests.simulator.topic_mutants:on_a_topic", (begun_unread,),
    ),
    Mutant(
        "what retention has deleted of a topic made again is not told", "trace-46",
        (Edit(f"{_partition}:begin_at", "max(UNKNOWN_READINGS, unread) + beginning",
              "max(UNKNOWN_READINGS, unread)"),),
        "tests.simulator.topic_mutants:on_another_topic",
        (another_one.test_what_retention_deletes_of_a_topic_made_again_is_in_the_gap,),
    ),
    Mutant(
        "simulated: where a stream begins is known from its first reading only", "trace-46",
        (Edit(f"{_partition}:Partition.seek", "if found.is_first:", "if False:"),),
        _simulated, (1, *BEGUN),
    ),
    Mutant(
        "simulated: what retention has deleted of a topic made again is not told", "trace-46",
        (Edit(f"{_partition}:begin_at", "max(UNKNOWN_READINGS, unread) + beginning",
              "max(UNKNOWN_READINGS, unread)"),),
        _simulated, (1, *UNREAD, "at=2.35s expire s1"),
    ),
    Mutant(
        "a quarantined reading does not name the topic's id", "trace-46",
        (Edit("slackwater.proxy.topic.input:TopicInput._take", "self._watched.state.mark", '""'),),
        "tests.simulator.topic_mutants:on_another_topic",
        (another_one.test_a_quarantined_reading_names_the_id,),
    ),
    Mutant(
        "a quarantined reading does not name its proxy", "trace-23",
        (Edit("slackwater.proxy.topic.input:TopicInput._offer", "partition.log.inc", "0"),),
        "tests.simulator.topic_mutants:on_another_topic",
        (another_one.test_a_quarantined_reading_names_the_incarnation,),
    ),
    Mutant(
        "an added partition is taken in where each orderer likes", "trace-47",
        (Edit(f"{_session}._lacks_logs", "name in self._config.coming", "False"),),
        f"{_added}:test_replicas_agree_wherever_they_take_it_in", (900, 1),
    ),
    Mutant(
        "an orderer emits what lies behind the record that names another log", "trace-47",
        (Edit(f"{_session}._lacks_logs", "return self._is_ending", "return False"),
         Edit(f"{_session}.step", "if self._is_ending:", "if False:")),
        f"{_added}:test_it_emits_nothing_beyond_the_record_that_tells_of_another_log",
    ),
    Mutant(
        "the log of an added partition begins with any watermark", "trace-47",
        (Edit(f"{_logs}:take_over", "log.begin(added_at=added_at)", "log.begin()"),),
        "tests.simulator.topic_mutants:on_a_growing_topic",
        (added.test_the_proxy_records_the_partition_before_it_names_it_and_begins_its_log,),
    ),
    Mutant(
        "an added partition is read from where it begins now", "trace-47",
        (Edit(f"{_partition}:begin_at", "known is None and was_added", "False"),),
        "tests.simulator.topic_mutants:on_a_topic",
        (expired_at_an_added_one,),
    ),
    Mutant(
        "a partition added before the first reading was always there", "trace-47",
        (Edit(f"{_logs}:take_over", "log.scan.positions or log.core.watermark > NEVER",
              "log.core.watermark > NEVER"),),
        "tests.simulator.topic_mutants:on_a_topic", (added_before_the_first_reading,),
    ),
    Mutant(
        "simulated: a partition added before the first reading was always there", "trace-47",
        (Edit(f"{_logs}:take_over", "log.scan.positions or log.core.watermark > NEVER",
              "log.core.watermark > NEVER"),),
        _simulated, (1, *ADDED_UNREAD),
    ),
    Mutant(
        "an added log that has START alone was always there", "trace-47",
        (Edit(f"{_logs}:take_over", "log.was_added = True", "pass"),),
        "tests.simulator.topic_mutants:on_a_topic", (added_before_the_first_reading,),
    ),
    Mutant(
        "a new proxy does not ask which of its partitions were added", "trace-47",
        (Edit(f"{_logs}:take_over", "[first] if context.name.share else []", "[]"),),
        "tests.simulator.topic_mutants:on_a_topic", (added_with_its_proxy,),
    ),
    Mutant(
        "simulated: a new proxy does not ask which of its partitions were added", "trace-47",
        (Edit(f"{_logs}:take_over", "[first] if context.name.share else []", "[]"),),
        "tests.simulator.topic_mutants:with_two_proxies", SECOND_AWAY,
    ),
    Mutant(
        "the added log of a new proxy begins without a watermark", "trace-47",
        (Edit(f"{_logs}:take_over",
              "max(before.watermarks, default=NEVER)", "NEVER"),),
        "tests.simulator.topic_mutants:on_a_topic", (added_with_its_proxy,),
    ),
    Mutant(
        "each log that has START alone is an added one", "trace-47",
        (Edit(f"{_logs}:take_over", "*_added(unread, transport, [log.topic for log in begun])",
              "*unread"),),
        "tests.simulator.topic_mutants:on_a_topic", (first_start_interrupted,),
    ),
    Mutant(
        "a position is stored without its leader epoch", "trace-46",
        (Edit("slackwater.proxy.topic.input:TopicInput._take",
              "partition.log.core.input_epoch = fetched.epoch", "pass"),),
        "tests.simulator.topic_mutants:on_a_topic", (truncated_unseen,),
    ),
    Mutant(
        "simulated: a position is stored without its leader epoch", "trace-46",
        (Edit("slackwater.proxy.topic.input:TopicInput._take",
              "partition.log.core.input_epoch = fetched.epoch", "pass"),),
        _simulated, (1, *UNSEEN),
    ),
    Mutant(
        "simulated: a position has the epoch of earlier messages", "trace-46",
        (Edit("slackwater.proxy.topic.input:TopicInput._take",
              "partition.log.core.input_epoch = fetched.epoch",
              "partition.log.core.input_epoch = max(0, partition.log.core.input_epoch)"),),
        _simulated, (1, "at=2s unclean s1 for 0.001s by 0", "at=2.3s kill proxy/s1"),
    ),
    Mutant(
        "a stream rests after each truncation", "trace-46",
        (Edit("slackwater.proxy.topicmemory:TopicMemory.note_truncation",
              "known != self.truncated[identity]", "False"),),
        "tests.simulator.topic_mutants:on_a_topic",
        (another_one.test_a_truncation_is_no_failure_unless_it_is_told_again_and_again,),
    ),
    Mutant(
        "a hint of a START hides what was there before it", "trace-46",
        (Edit("slackwater.proxy.sourcelog:SourceLog.begin",
              "if at is not None:", "if at := at or InputPosition(0):"),),
        "tests.simulator.topic_mutants:on_another_topic",
        (another_one.test_a_gap_is_told_also_if_the_process_ends_before_it_is_sent,),
    ),
    Mutant(
        "the number of logs is not recorded", "trace-47",
        (Edit(f"{_logs}:decided_partitions", "if count != recorded:", "if recorded is None:"),),
        "tests.simulator.topic_mutants:on_a_growing_topic",
        (added.test_the_proxy_records_the_partition_before_it_names_it_and_begins_its_log,),
    ),
    Mutant(
        "a proxy that sees a partition before the first one never takes it in", "trace-47",
        (Edit(f"{_logs}:decided_partitions", "if count < there:", "if False:"),),
        "tests.simulator.topic_mutants:on_a_topic",
        (added.test_a_proxy_that_sees_a_partition_before_the_first_one_takes_it_in_later,),
    ),
    Mutant(
        "simulated: the second proxy of a topic never takes an added partition in", "trace-47",
        (Edit(f"{_logs}:decided_partitions", "if count < there:", "if False:"),),
        "tests.simulator.topic_mutants:with_two_proxies", FIRST_AWAY,
    ),
    Mutant(
        "the number of logs follows the topic down", "trace-47",
        (Edit(f"{_logs}:decided_partitions", "max(there, recorded or 0)", "there"),),
        "tests.simulator.topic_mutants:on_a_growing_topic",
        (added.test_the_number_never_decreases,),
    ),
    Mutant(
        "an added partition of a fixed topic is taken in by itself", "trace-47",
        (Edit("slackwater.host.orderer:inputs", "withheld=not is_taken", "withheld=False"),),
        "tests.unit.host.test_orderer_inputs:"
        "test_partitions_that_a_fixed_query_was_registered_without_are_withheld",
    ),
    Mutant(
        "windows wait for the end of a log that nobody reads", "trace-47",
        (Edit(f"{_session}._ends", "if log in self.inputs else 0", ""),),
        f"{_added}:test_a_fixed_query_answers_in_time_however_full_the_added_log_is",
    ),
    Mutant(
        "a state record in fewer logs is not continued", "trace-47",
        (Edit(f"{_recovery}:with_added_logs", "not known.keys() <= {*config.logs}",
              "known.keys() != {*config.logs}"),),
        f"{_added}:test_a_state_record_in_fewer_logs_continues_with_the_added_one",
    ),
    Mutant(
        "the ids of the deployment's topics are not recorded", "trace-48",
        (Edit(f"{_own}:record_new", "if new:", "if False:"),),
        f"{_own_topics}:test_a_topic_that_was_made_again_between_two_runs_is_not_used",
    ),
    Mutant(
        "a deleted topic is made again at the next start", "trace-48",
        (Edit(f"{_own}:_compare", "state is None or", "state is not None and"),),
        f"{_own_topics}:test_it_is_not_made_at_the_next_start",
    ),
    Mutant(
        "a topic that is made again while it is used is read on", "trace-48",
        (Edit(f"{_own}:OwnTopics._judge", "is_lost = _is_other(state, known)", "is_lost = False"),),
        f"{_own_topics}:test_it_is_found_while_it_is_used_and_ends_those_that_use_it",
    ),
    Mutant(
        "a registry that was made again is taken for a new one", "trace-48",
        (Edit(f"{_own}:why_registry_is_lost", "if end)", "if not end)"),),
        f"{_own_topics}:test_a_registry_without_the_queries_of_the_state_records_is_not_a_new_one",
    ),
)  # fmt: skip
