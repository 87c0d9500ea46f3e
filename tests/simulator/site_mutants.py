"""Mutants of sites and uplinks (rule-37), each detected by a scenario or a unit test."""

from __future__ import annotations

from typing import Final

from tests.simulator.mutation import Edit, Mutant

_uplink = "slackwater.protocols.fargo.uplink:Uplink"
_session = "slackwater.sessions.uplink"
_merger = "slackwater.sessions.merger:MergerSession"
_logs = "slackwater.registration.site_logs"
_lists = "slackwater.protocols.fargo.key_lists"
_of_uplink = "tests.unit.protocols.fargo.test_uplink"
_of_session = "tests.unit.sessions.test_uplink_session"
_of_merger = "tests.unit.sessions.test_site_merger"
_of_lists = "tests.unit.protocols.fargo.test_key_lists"
_of_sites = "tests.unit.deployment.test_sites"
_of_logs = "tests.unit.registration.test_site_logs"
_scenario = "tests.scenarios.test_r70_a_site_that_is_cut_off"
_several = "tests.scenarios.test_r82_a_site_with_several_children"
_lost = "tests.scenarios.test_r83_a_site_that_has_lost_its_kafka"
_orderer = "slackwater.protocols.dpc.sunion.core:OrdererCore"
_link = "tests.scenarios.test_r70_a_link_that_is_cut"

SITE_MUTANTS: Final = (
    Mutant(
        "truncation before the centre has it",
        "trace-70",
        (Edit(f"{_uplink}.kept_from", "<= self.has_to", "<= self._read_to"),),
        f"{_scenario}:test_what_the_centre_lacks_is_kept_while_the_link_is_cut",
    ),
    Mutant(
        "a site's merged panes are truncated for its own roots",
        "trace-70",
        (Edit(f"{_logs}:kept_at_site", "del kept[limited]", "pass"),),
        f"{_of_logs}:test_without_an_uplink_that_knows_nothing_is_deleted",
    ),
    Mutant(
        "a site's deltas are truncated before they are merged",
        "trace-70",
        (Edit(f"{_logs}:kept_at_site", "limits |= ", "_ = "),),
        f"{_of_logs}:test_deltas_are_kept_until_they_are_merged",
    ),
    Mutant(
        "a site's merger begins where its roots are",
        "trace-70",
        (Edit(f"{_merger}._begin", "None if config.keeps_all else state", "state"),),
        f"{_of_merger}:test_it_continues_behind_its_log_and_not_at_s",
        (True, 2),
    ),
    Mutant(
        "uplink begins behind the next pane",
        "trace-71",
        (Edit(f"{_uplink}.centre_has", "max(self._read_to, end)", "max(self._read_to, end + 1)"),),
        f"{_link}:test_an_uplink_that_dies_at_any_tenth_of_a_pane_loses_and_doubles_nothing",
        (5,),
    ),
    Mutant(
        "uplink begins behind a pane that lacks pieces",
        "trace-71",
        (Edit(f"{_session}:complete_to_of", "if is_complete else record.start", ""),),
        f"{_scenario}:test_an_uplink_that_died_within_a_pane_is_followed_from_the_pane_on",
    ),
    Mutant(
        "uplink passes a pane that the site lacks",
        "trace-71",
        (Edit(f"{_uplink}.take", "if not (is_next or self._is_first):", "if False:"),),
        f"{_of_uplink}:test_it_stops_at_a_pane_that_the_site_lacks_and_says_so",
    ),
    Mutant(
        "an empty pane is not sent",
        "trace-71",
        (Edit(f"{_uplink}.take", "self._queue.append(pane)",
              "_ = ref.rows and self._queue.append(pane)"),),
        f"{_of_uplink}:test_an_empty_pane_is_sent",
    ),
    Mutant(
        "what the centre has is sent again",
        "trace-71",
        (Edit(f"{_session}:UplinkSession._note_copy", "part.panes.centre_has(", "int("),),
        f"{_of_session}:test_a_second_copy_waits_while_the_first_works_and_takes_over_when_it_dies",
    ),
    Mutant(
        "a key list never sent again",
        "trace-80",
        (Edit(f"{_lists}:SentLists.sent", "if record.start < start + self._lists_us", "if True"),),
        f"{_of_lists}:test_a_list_is_sent_twice_and_then_named",
    ),
    Mutant(
        "a root continues behind the keys that its panes name",
        "trace-80",
        (Edit("slackwater.sessions.merged_input:MergedInput._take", "if carries(merged):",
              "if False:"),),
        f"{_link}:test_a_root_that_restarts_has_the_keys_that_its_panes_name",
    ),
    Mutant(
        "a list is named before it has been sent",
        "trace-80",
        (Edit(f"{_lists}:SentLists.sent", "if found in self._carried:", "if True:"),),
        f"{_link}:test_the_centre_answers_exactly_from_merged_panes_alone",
    ),
    Mutant(
        "a list that repeats nowhere is remembered",
        "trace-80",
        (Edit(f"{_lists}:SentLists.sent", "not is_repeated or ", ""),),
        f"{_of_lists}:test_lists_that_do_not_repeat_are_remembered_nowhere",
    ),
    Mutant(
        "a pane is cut into pieces by the numbers of its keys",
        "trace-81",
        (Edit("slackwater.primitives.deltas:Aggregates.extract",
              "order, names = self._table.in_key_order(value.index)",
              "order, names = None, self._table.names(value.index)"),),
        "tests.unit.primitives.test_moved_panes:test_a_piece_is_the_same_whoever_writes_it",
    ),
    Mutant(
        "the stages of a site are placed at the centre",
        "trace-72",
        (Edit("slackwater.model.kinds:_orderers", "query.is_remote(child)", "False"),),
        f"{_of_sites}:test_the_centre_has_a_remote_child_for_each_site",
    ),
    Mutant(
        "a remote child is never failed",
        "trace-72",
        (Edit("slackwater.protocols.dpc.soutput.core:RootCore._note_read",
              "self.line.note_read(child, fetched_at)",
              "None if child in self._config.remote else self.line.note_read(child, fetched_at)"),),
        f"{_scenario}:test_without_the_site_each_window_is_answered_within_x_and_names_its_stream",
    ),
    Mutant(
        "an uplink writes each child under its number at the site",
        "trace-82",
        (Edit(f"{_session}:UplinkSession.start", "config.children[child]", "child"),
         Edit(f"{_session}:UplinkSession.__init__", "(topic, of[child])", "(topic, child)")),
        f"{_several}:test_two_sites_of_two_children_each_have_their_panes_in_their_own_logs",
    ),
    Mutant(
        "what the centre has of one child counts for the others",
        "trace-82",
        (Edit(f"{_session}:place_of", 'f"{part}.{child}"', 'f"{part}."'),),
        f"{_of_session}:test_each_child_is_sent_under_its_number_and_reported_by_itself",
    ),
    Mutant(
        "what a site keeps of one child is what the centre lacks of another",
        "trace-82",
        (Edit(f"{_logs}:kept_at_site", "place_of(part, child)", "place_of(part, 0)"),),
        f"{_of_logs}:test_what_is_kept_of_each_child_is_what_the_centre_lacks_of_it",
    ),
    Mutant(
        "all streams of a site are in its first child",
        "trace-82",
        (Edit("slackwater.deployment.sites:_children_at", "groups if len(groups) > 1 else ()",
              "()"),),
        f"{_of_sites}:test_a_site_has_several_children_if_they_are_named",
    ),
    Mutant(
        "a site whose Kafka was lost begins where the centre does",
        "trace-83",
        (Edit("slackwater.registration.site_starts:start_behind",
              "if all(end is None for end in arrived):", "if True:"),),
        "tests.unit.registration.test_site_starts"
        ":test_it_begins_where_the_first_of_its_logs_ends_and_says_what_is_lost",
    ),
    Mutant(
        "what a site has lost with its Kafka is not said",
        "trace-83",
        (Edit(f"{_orderer}._gap", "start - self._lookback_us < self._config.lost_until", "False"),),
        f"{_lost}:test_each_answer_of_the_site_that_may_lack_readings_says_so",
    ),
    Mutant(
        "a run of empty buckets passes what is lost",
        "trace-83",
        (Edit(f"{_orderer}._within_loss", "min(end, lost_until) if start < lost_until else end",
              "end"),),
        f"{_lost}:test_a_run_of_empty_buckets_does_not_pass_the_loss",
    ),
    Mutant(
        "panes are sent to a centre that waits for earlier ones",
        "trace-73",
        (Edit("slackwater.host.uplink:_why_other_panes", "and mine.lost_until_us is None",
              "and False"),),
        "tests.unit.host.test_uplink_driver:test_panes_that_do_not_fit_are_not_sent",
    ),
    Mutant(
        "panes of another query are sent",
        "trace-73",
        (Edit(f"{_session}:UplinkSession._ask", "if why := config.why_other(found):",
              "if (why := config.why_other(found)) and False:"),),
        f"{_of_session}:test_another_query_is_sent_nothing",
    ),
    Mutant(
        "a query with remote children starts within a pane",
        "trace-73",
        (Edit("slackwater.registration.registration:Registration._begin",
              "if query.has_remote:", "if False:"),),
        "tests.unit.registration.test_site_starts"
        ":test_the_centre_starts_at_an_edge_and_the_site_with_it",
    ),
)  # fmt: skip
