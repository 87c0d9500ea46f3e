"""Mutants of the record and the registry where queries share children (trace-50).

Each is detected by a scenario on nodes in which a query joins the children of another one, or by a
unit test of the record that ``up`` makes again from the registry.
"""

from __future__ import annotations

from typing import Final

from tests.simulator.mutation import Edit, Mutant

_scenario = "tests.simulator.test_joining"
_outlive = f"{_scenario}:test_children_outlive_the_query_that_they_are_named_after"
_ended = f"{_scenario}:test_children_end_with_the_last_query_that_reads_them"
_late = f"{_scenario}:test_it_begins_where_all_deltas_are_if_registration_takes_long"
_recorded = "slackwater.control.recorded"
_starts = "slackwater.registration.starts:Starts"
_other = "slackwater.registration.starts:why_other_children"
_dropped = "slackwater.control.control_state:drop_tombstones"
_is_read = "(key[0] != CHILDREN or _is_read(key[1], state))"

JOINING_MUTANTS: Final = (
    Mutant(
        "children end with the query that they are named after", "trace-50",
        (Edit(f"{_recorded}:_of_query", "(kind.follows and has_earlier)",
              "(kind.follows and has_earlier) or (kind.is_shared and not query.has_children)"),),
        _outlive,
    ),
    Mutant(
        "children are placed again when the tombstone of their query is dropped", "trace-50",
        (Edit(_dropped, _is_read,
              '(key[0] != CHILDREN or key[1].rsplit(".", 2)[0] not in dropped)'),),
        _outlive,
    ),
    Mutant(
        "children that nobody reads stay in the record", "trace-50",
        (Edit(_dropped, _is_read, "True"),), _ended,
    ),
    Mutant(
        "a pause of one query pauses the children of another one", "trace-50",
        (Edit(f"{_recorded}:fragment_specs",
              "if state.queries[name].wanted == Wanted.RUNNING.value",
              "if state.queries[name].wanted == Wanted.RUNNING.value\n"
              "        and query.deployment.queries[name].child_query\n"
              "        not in state.queries_wanted(Wanted.PAUSED)"),),
        f"{_scenario}:test_a_pause_of_one_does_not_pause_the_children_of_the_other",
    ),
    Mutant(
        "a query that has joined begins with its children", "trace-50",
        (Edit(f"{_starts}.joined", "return max(start_us, grid.first_window_from(since_us))",
              "return children_us"),),
        f"{_scenario}:test_it_reads_the_children_that_run",
    ),
    Mutant(
        "a query that has joined begins before the deltas that are left", "trace-50",
        (Edit(f"{_starts}.joined", "return max(start_us, grid.first_window_from(since_us))",
              "return start_us"),),
        _late,
    ),
    Mutant(
        "a query is registered with children that have lost their last reader", "trace-50",
        (Edit(f"{_starts}._kept_since", 'if q.state != "deleted"', "if q.state"),),
        f"{_scenario}:test_it_is_not_registered_if_its_children_have_lost_their_last_reader",
    ),
    Mutant(
        "a query waits for children that will never be there", "trace-50",
        (Edit(_other, "if known is None and of not in {*recorded, *registered}:", "if False:"),),
        f"{_scenario}:test_it_is_not_registered_if_the_query_with_the_children_never_was",
    ),
    Mutant(
        "the record and the registry have different children of a query", "trace-50",
        (Edit(_other, "if known is not None and known.spec.child_query != of:", "if False:"),),
        f"{_scenario}:test_it_is_given_up_if_it_is_registered_with_other_children",
    ),
    Mutant(
        "controllers do not check that the children are there", "trace-50",
        (Edit("slackwater.control.admission:_against", "if not spec.has_children and",
              "if False and"),),
        f"{_scenario}:test_it_has_children_of_its_own_if_the_others_ended_meanwhile",
    ),
    Mutant(
        "a deleted query remains a reader of its children in the registry", "trace-50",
        (Edit(f"{_recorded}:assignment",
              "state_wanted is Wanted.DELETED or query in applied", "query in applied"),),
        _outlive,
    ),
    Mutant(
        "numbers begin anew with a record that was given back", "trace-50",
        (Edit("slackwater.control.control_state:join",
              "max(one.number_greatest, other.number_greatest)", "one.number_greatest"),
         Edit("slackwater.control.control_object:ControlObject._join_node",
              "max(self.state.number_greatest, operation.number_seen)", "0"),
         Edit("slackwater.control.control_object:greatest_view",
              "max([view_of_number(state.number_greatest), *used])", "0")),
        f"{_scenario}:test_a_record_that_was_lost_has_the_same_children", (True,),
    ),
    Mutant(
        "a query has children of its own when the record is made again", "trace-50",
        (Edit("slackwater.deployment.sharing:_as_registered",
              "children_of=registered.children_of,", ""),),
        "tests.unit.control.test_declared:"
        "test_a_record_that_is_made_again_has_the_children_of_one_that_is_deleted",
    ),
)  # fmt: skip
