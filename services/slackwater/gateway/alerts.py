"""The alerts as JSON: each in one sentence, with its rule; what is pushed to the page is bounded.

What stands is a state and not a series of changes, so it is pushed as the status is: each one
replaces the one before, and a reader that comes back gets the latest. What ended while a reader was
away is among the last ones that ended. The newest come first; those beyond ``SHOWN_MAX`` or
``SHOWN_BYTES_MAX`` are counted in ``left_off``.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from slackwater.delivery.records import AlertRecord, AlertValues
from slackwater.delivery.view import AlertView, public
from slackwater.model.alerts import AlertSpec
from slackwater.model.deployment import QuerySpec
from slackwater.status.queries import lasting, moment

SHOWN_MAX: Final = 200
"""Alerts of each kind that are pushed."""
SHOWN_BYTES_MAX: Final = 128 * 1024
"""Bytes of each kind: a key may have 65,536 characters."""
Rules = Mapping[tuple[str, str], AlertSpec]
"""By query and name."""
_NONE: Final = AlertSpec("")


def rules_of(queries: Mapping[str, QuerySpec]) -> dict[tuple[str, str], AlertSpec]:
    """Return the rules of queries, which are by name."""
    return {(query, rule.name): rule for query, of in queries.items() for rule in of.alerts}


def alerts_json(view: AlertView, rules: Rules) -> dict[str, Any]:
    """Return all rules, and which alerts stand and ended last."""
    return {"rules": _rules(rules)} | {
        kind: [_shown(record, rules) for record in of] for kind, of in _lists(view).items()
    }


def alerts_frame(view: AlertView, rules: Rules) -> bytes:
    """Return the same, bounded, as a server-sent event."""
    found: dict[str, Any] = {"rules": _rules(rules), "left_off": {}}
    for kind, of in _lists(view).items():
        found[kind], found["left_off"][kind] = _bounded(of, rules)
    return b"event: alerts\ndata: %b\n\n" % orjson.dumps(found)


def _lists(view: AlertView) -> dict[str, list[AlertRecord]]:
    """Return the records by kind; the newest first."""

    def newest(of: Iterable[AlertRecord]) -> list[AlertRecord]:
        names = sorted(of, key=lambda each: (each.query, each.rule, each.key))
        return sorted(names, key=lambda each: each.changed_to, reverse=True)

    return {
        "firing": newest(view.standing.values()),
        "pending": newest(view.pending.values()),
        "ended": [*reversed(view.ended)],
    }


def _bounded(records: Iterable[AlertRecord], rules: Rules) -> tuple[list[orjson.Fragment], int]:
    encoded, size, left_off = list[orjson.Fragment](), 0, 0
    for record in records:
        if len(encoded) < SHOWN_MAX and size < SHOWN_BYTES_MAX:
            one = orjson.dumps(_shown(record, rules))
            size += len(one)
            if size <= SHOWN_BYTES_MAX:
                encoded.append(orjson.Fragment(one))
                continue
        left_off += 1
    return encoded, left_off


def _shown(record: AlertRecord, rules: Rules) -> dict[str, Any]:
    rule = rules.get((record.query, record.rule), _NONE)
    return public(record) | {"stream": rule.stream, "sentence": sentence_of(record, rule)}


def _rules(rules: Rules) -> list[dict[str, Any]]:
    return [
        {"alert": name, "query": query, "stream": rule.stream, "sentence": _rule_sentence(rule)}
        for (query, name), rule in sorted(rules.items())
    ]


def _rule_sentence(rule: AlertSpec) -> str:
    if rule.missing_us is not None:
        return f"{rule.stream} is missing for {lasting(rule.missing_us)}"
    row = f" in {rule.windows} windows in a row" if rule.windows > 1 else ""
    also = "tentative answers, too" if rule.tentative == "act" else "exact answers only"
    return f"{rule.when}{row}; {also}"


def sentence_of(record: AlertRecord, rule: AlertSpec) -> str:
    """Return what there is to say of an alert, without the names of its rule, query and key."""
    began = record.began
    values, first, last = _values(began.values), moment(began.window_end, None), ""
    without = f" without {', '.join(began.missing)}" if began.missing else ""
    last = moment(record.changed_to, None)
    reason = f"; {record.reason}" if record.reason else ""
    if rule.stream is not None:
        first = moment(began.window_start, None)
        if record.state == "firing":
            return f"{rule.stream} is missing since {first}"
        return f"{record.state}: {rule.stream} was missing from {first} to {last}{reason}"
    if record.state == "firing":
        tentative = f", tentative{without}" if began.tentative else ""
        return f"fires since {first}{tentative}{_after(values)}"
    if record.state == "pending":
        return f"pending at {last}{_after(values)}"
    if record.state in ("confirmed", "withdrawn"):
        exact = "" if record.exact is None else f", {_values(record.exact)} exactly"
        return f"{record.state}: {values} tentatively{without}{exact}{reason}"
    return f"{record.state}: fired from {first} to {last}{_after(values)}{reason}"


def _after(values: str) -> str:
    return f": {values}" if values else ""


def _values(of: AlertValues) -> str:
    return ", ".join(f"{name} {'null' if v is None else f'{v:g}'}" for name, v in of.items())
