"""Queries as statements and in the deployment file: the definitions are equal."""

# ruff: noqa: E501 -- what is compared is in one line

from __future__ import annotations

import pytest

from slackwater.control.applied import AppliedQuery, to_text
from slackwater.deployment.parse import parse_deployment
from slackwater.model.deployment import Deployment
from slackwater.sql.document import parse_deployment_sql

STREAMS = """\
apiVersion: slackwater/v1
streams:
  lab:
    topic: {name: lab-readings, format: json}
    key: {field: mote}
    time: {field: at, unit: us}
    fields: [temperature, group, emit]
    texts: {status: state}
    expect_every: auto
  room-1: {key: {column: node}, time: {column: ts, unit: ms}, fields: [temperature], disorder: 1.5s}
  words: {key: {column: k}, time: {column: t, unit: s}, fields: [distinct, KEY, window_start]}
  room-2: {key: {value: two}, time: {columns: [d, t], format: "%Y-%m-%d %H"}, fields: {temperature: T}}
queries:
"""
STATEMENTS = """\
CREATE STREAM lab WITH (
  topic = (name = 'lab-readings', format = 'json'), key = (field = 'mote'),
  time = (field = 'at', unit = 'us'), fields = ['temperature', 'group', 'emit'],
  texts = (status = 'state'), expect_every = 'auto');
CREATE STREAM "room-1" WITH (
  key = (column = 'node'), time = (column = 'ts', unit = 'ms'), fields = ['temperature'],
  disorder = '1.5s');
CREATE STREAM words WITH (
  key = (column = 'k'), time = (column = 't', unit = 's'),
  fields = ['distinct', 'KEY', 'window_start']);
CREATE STREAM "room-2" WITH (
  key = (value = 'two'), time = (columns = ['d', 't'], format = '%Y-%m-%d %H'),
  fields = (temperature = 'T'));
"""
MINUTE = "INTERVAL '1' MINUTE"
WITHIN = "EMIT WITHIN INTERVAL '2' SECOND"
BY = "GROUP BY window_start, key"
FIRST = "  first: {from: [room-1], window: {size: 1m}, aggregate: [count, avg], bound: 2s}\n"
FIRST_SQL = (
    "CREATE QUERY first AS SELECT count(COLUMNS(*)), avg(COLUMNS(*))"
    f' FROM TUMBLE(TABLE "room-1", {MINUTE}) {BY} {WITHIN};\n'
)
PAIRS = {
    "all fields": (
        "{from: [room-1], window: {size: 1m}, aggregate: [count, avg], bound: 2s}",
        (
            "SELECT window_start, key, count(COLUMNS(*)), avg(COLUMNS(*))"
            f' FROM TUMBLE(TABLE "room-1", {MINUTE}) {BY} {WITHIN}'
        ),
    ),
    "one field": (
        (
            "{from: [room-1], select: {temperature: temperature}, window: {size: 1m},"
            " aggregate: [min], bound: 2s}"
        ),
        f'SELECT min(temperature) FROM TUMBLE(TABLE "room-1", {MINUTE}) {BY} {WITHIN}',
    ),
    "a sliding window": (
        (
            "{from: [lab, room-1], where: temperature > -40, select: {fahrenheit: temperature * 1.8 + 32},"
            " window: {size: 1m, slide: 10s}, aggregate: [count, avg], bound: 2s, parts: 4}"
        ),
        (
            "SELECT window_start, key, count(temperature * 1.8 + 32) AS fahrenheit_count,"
            " AVG(temperature * 1.8 + 32) AS fahrenheit_avg"
            " FROM HOP(TABLE lab UNION ALL TABLE \"room-1\", INTERVAL '10' SECOND, INTERVAL '1' MINUTE)"
            f" WHERE temperature > -40 {BY} {WITHIN} WITH (parts = 4)"
        ),
    ),
    "aggregates by field": (
        (
            "{from: [lab], window: {size: 1m},"
            " aggregate: {emit: [max, count], temperature: [avg, quantiles: [0.5]]}, bound: 2s}"
        ),
        (
            'SELECT max("emit"), avg(temperature), count("emit"), quantile(temperature, 0.5)'
            f" FROM TUMBLE(TABLE lab, {MINUTE}) {BY} {WITHIN}"
        ),
    ),
    "aggregates of expressions": (
        (
            "{from: [lab], select: {emit: '\"emit\"', f: temperature * 2}, window: {size: 1m},"
            " aggregate: {emit: [max], f: [avg]}, bound: 2s}"
        ),
        (
            'SELECT max("emit"), avg(temperature * 2) AS f_avg'
            f" FROM TUMBLE(TABLE lab, {MINUTE}) {BY} {WITHIN}"
        ),
    ),
    "several fields": (
        (
            "{from: [room-1], select: {a: temperature, b: temperature + 1}, window: {size: 1m},"
            " aggregate: [sum, max], bound: 2s}"
        ),
        (
            "SELECT key, sum(temperature) AS a_sum, sum(temperature + 1) AS b_sum,"
            " max(temperature) AS a_max, max(temperature + 1) AS b_max"
            f' FROM TUMBLE(TABLE "room-1", {MINUTE}) {BY} {WITHIN}'
        ),
    ),
    "quantiles and the largest": (
        (
            "{from: [room-1], select: {temperature: temperature}, window: {size: 1m},"
            " aggregate: [avg, quantiles: [0.5, 0.999], top: 3, last], bound: 2s}"
        ),
        (
            "SELECT avg(temperature), quantile(temperature, 0.5), quantile(temperature, 0.999),"
            " top(temperature, 3), last(temperature)"
            f' FROM TUMBLE(TABLE "room-1", {MINUTE}) {BY} {WITHIN}'
        ),
    ),
    "quantiles of an expression": (
        (
            "{from: [room-1], select: {x: temperature / 2}, window: {size: 1m},"
            " aggregate: [quantiles: [0.05], top: 2], bound: 2s}"
        ),
        (
            "SELECT quantile(temperature / 2, 0.05) AS x_p05, top(temperature / 2, 2) AS x_top2"
            f' FROM TUMBLE(TABLE "room-1", {MINUTE}) {BY} {WITHIN}'
        ),
    ),
    "fields that are words of SQL": (
        (
            "{from: [lab], where: group > 3 AND emit < 2, select: {group: group, emit: '\"emit\"'},"
            " window: {size: 1m}, aggregate: [avg], bound: 2s}"
        ),
        (
            f'SELECT avg(group), avg("emit") FROM TUMBLE(TABLE lab, {MINUTE})'
            f" WHERE group > 3 AND emit < 2 {BY} {WITHIN}"
        ),
    ),
    "a condition on texts": (
        (
            "{from: [lab], where: \"status IN ('ok', 'it''s') OR key = 'a'\", select: {t: temperature},"
            " bound: 1s}"
        ),
        (
            "SELECT temperature AS t FROM lab WHERE status IN ('ok', 'it''s') OR key = 'a'"
            " EMIT WITHIN INTERVAL '1' SECOND"
        ),
    ),
    "a condition on figures": (
        (
            "{from: [room-1], select: {temperature: temperature, f: temperature * 2}, window: {size: 1m},"
            " aggregate: [count, quantiles: [0.99]],"
            " having: temperature_count >= 3 AND (f_p99 > 20 OR key = 'hall'), bound: 2s}"
        ),
        (
            "SELECT count(temperature), quantile(temperature, 0.99), count(temperature * 2) AS f_count,"
            " quantile(temperature * 2, 0.99) AS f_p99"
            f' FROM TUMBLE(TABLE "room-1", {MINUTE}) {BY}'
            " HAVING count(temperature) >= 3 AND (quantile(temperature * 2, 0.99) > 20 OR key = 'hall')"
            f" {WITHIN}"
        ),
    ),
    "a condition on figures of all fields": (
        (
            "{from: [lab], window: {size: 1m}, aggregate: [avg, max],"
            " having: temperature_avg < group_max, bound: 2s}"
        ),
        (
            f"SELECT avg(COLUMNS(*)), max(COLUMNS(*)) FROM TUMBLE(TABLE lab, {MINUTE}) {BY}"
            f" HAVING avg(temperature) < max(group) {WITHIN}"
        ),
    ),
    "readings": ("{from: [room-1], bound: 2s}", f'SELECT * FROM "room-1" {WITHIN}'),
    "readings of several": (
        "{from: [lab, room-1, room-2], select: {temperature: temperature}, bound: 2s, children: 3}",
        (
            'SELECT key, temperature FROM (TABLE lab UNION ALL TABLE "room-1" UNION ALL TABLE'
            f' "room-2") {WITHIN} WITH (children = 3)'
        ),
    ),
    "children with names": (
        (
            "{from: [lab, room-1], select: {temperature: temperature}, bound: 2s,"
            " children: {first-half: [lab/0-7], rest: [lab/8-, room-1]}}"
        ),
        (
            'SELECT key, temperature FROM (TABLE lab UNION ALL TABLE "room-1") EMIT WITHIN'
            " INTERVAL '2' SECOND WITH (children = (\"first-half\" = ['lab/0-7'],"
            " rest = ['lab/8-', 'room-1']))"
        ),
    ),
    "readings with an expression": (
        (
            "{from: [room-1], where: temperature IS NOT NULL,"
            " select: {temperature: temperature, x: CASE WHEN temperature > 1 THEN 1 ELSE 0 END}, bound: 2s}"
        ),
        (
            "SELECT temperature, CASE WHEN temperature > 1 THEN 1 ELSE 0 END AS x"
            f' FROM "room-1" WHERE temperature IS NOT NULL {WITHIN}'
        ),
    ),
    "a chain": (
        (
            "{from: [first], where: temperature_count > 10, select: {mean: temperature_avg},"
            " window: {size: 1h, slide: 1m}, aggregate: [min, max], bound: 2s}"
        ),
        (
            "SELECT min(temperature_avg) AS mean_min, max(temperature_avg) AS mean_max"
            " FROM HOP(TABLE first, INTERVAL '1' MINUTE, INTERVAL '1' HOUR)"
            f" WHERE temperature_count > 10 {BY} {WITHIN}"
        ),
    ),
    "a chain with a stream": (
        (
            "{from: [first, room-2], where: temperature_count > 10 or temperature IS NOT NULL,"
            " select: {m: temperature_avg, alone: temperature}, window: {size: 1h}, aggregate: [max],"
            " bound: 2s}"
        ),
        (
            "SELECT max(temperature_avg) AS m_max, max(temperature) AS alone_max"
            " FROM TUMBLE(TABLE first UNION ALL TABLE \"room-2\", INTERVAL '1' HOUR)"
            f" WHERE temperature_count > 10 or temperature IS NOT NULL {BY} {WITHIN}"
        ),
    ),
    "a join": (
        (
            "{from: [room-1, room-2], join: {left: room-1, right: room-2, within: 500ms},"
            " where: left_temperature - right_temperature > 2,"
            " select: {difference: left_temperature - right_temperature}, window: {size: 1m},"
            " aggregate: [count, max], bound: 2s}"
        ),
        (
            "SELECT count(left_temperature - right_temperature) AS difference_count,"
            " max(left_temperature - right_temperature) AS difference_max"
            ' FROM TUMBLE(TABLE "room-1" JOIN TABLE "room-2" WITHIN INTERVAL \'500\' MILLISECOND,'
            f" {MINUTE}) WHERE left_temperature - right_temperature > 2 {BY} {WITHIN}"
        ),
    ),
    "a join of readings that reads the right stream first": (
        "{from: [room-2, room-1], join: {left: room-1, right: room-2, within: 0s}, bound: 2s}",
        (
            'SELECT * FROM (TABLE "room-1" JOIN TABLE "room-2" WITHIN INTERVAL \'0\' SECOND)'
            f" {WITHIN} WITH (from = ['room-2', 'room-1'])"
        ),
    ),
    "days of a zone": (
        "{from: [room-1], window: {size: 1d, zone: Europe/Berlin}, aggregate: [avg], bound: 2s}",
        (
            "SELECT avg(COLUMNS(*)) FROM"
            f" TUMBLE(TABLE \"room-1\", INTERVAL '1' DAY, ZONE => 'Europe/Berlin') {BY} {WITHIN}"
        ),
    ),
    "shifts of work": (
        (
            "{from: [room-1], window: {size: 8h, offset: 6h, zone: Europe/Berlin}, aggregate: [avg],"
            " bound: 2s}"
        ),
        (
            "SELECT avg(COLUMNS(*)) FROM TUMBLE(TABLE \"room-1\", INTERVAL '8' HOURS,"
            f" OFFSET => INTERVAL '6' HOUR, ZONE => 'Europe/Berlin') {BY} {WITHIN}"
        ),
    ),
    "weeks": (
        (
            "{from: [room-1], window: {size: 1w, starts: sunday, zone: America/New_York},"
            " aggregate: [avg], bound: 2s}"
        ),
        (
            "SELECT avg(COLUMNS(*)) FROM TUMBLE(TABLE \"room-1\", INTERVAL '1' WEEK,"
            f" STARTS => 'sunday', ZONE => 'America/New_York') {BY} {WITHIN}"
        ),
    ),
    "months": (
        "{from: [room-1], window: {size: 1mo, offset: 14d}, aggregate: [avg], bound: 2s}",
        (
            "SELECT avg(COLUMNS(*)) FROM TUMBLE(TABLE \"room-1\", INTERVAL '1' MONTH,"
            f" OFFSET => INTERVAL '14' DAY) {BY} {WITHIN}"
        ),
    ),
    "all options": (
        (
            "{from: [room-1], window: {size: 1m}, aggregate: [avg], bound: 2s, margin: 60ms,"
            " policy: {failure: delay, stabilization: suspend}, replicas: 3, parts: 2, copies: 2, mergers: 2,"
            " results: {format: json}}"
        ),
        (
            f'SELECT avg(COLUMNS(*)) FROM TUMBLE(TABLE "room-1", {MINUTE}) {BY} {WITHIN}'
            " WITH (margin = '60ms', policy = (failure = 'delay', stabilization = 'suspend'),"
            " replicas = 3, parts = 2, copies = 2, mergers = 2, results = (format = 'json'))"
        ),
    ),
    "comments and line breaks": (
        (
            "{from: [room-1], where: temperature > 1 AND temperature < 9, window: {size: 1m},"
            " aggregate: [var, stddev, range, first, distinct], bound: 2s}"
        ),
        (
            "-- what\nSELECT /* all */ var(COLUMNS(*)), stddev(COLUMNS(*)), range(COLUMNS(*)),"
            " first(COLUMNS(*)), distinct(COLUMNS(*))"
            f'\nFROM TUMBLE(TABLE "room-1", {MINUTE})\nWHERE temperature > 1 -- not 0\n  AND'
            f" temperature\n< 9\n{BY}\n{WITHIN}"
        ),
    ),
    "fields that are called distinct, KEY and window_start": (
        (
            "{from: [words], select: {distinct: distinct, KEY: KEY, d: distinct + window_start},"
            " bound: 2s}"
        ),
        "SELECT distinct, KEY, distinct + window_start AS d, key FROM words" + f" {WITHIN}",
    ),
    "the number of different values": (
        (
            "{from: [words], select: {distinct: distinct, KEY: KEY}, window: {size: 1m}, aggregate: [distinct],"
            " bound: 2s}"
        ),
        f"SELECT distinct(distinct), distinct(KEY) FROM TUMBLE(TABLE words, {MINUTE}) {BY} {WITHIN}",
    ),
    "words in any case": (
        (
            "{from: [lab], where: temperature between 1 and 2, select: {temperature: temperature},"
            " window: {size: 10s}, aggregate: [sum], bound: 2s}"
        ),
        (
            "select SUM(temperature) from tumble(table lab, interval '10' seconds) where temperature"
            " between 1 and 2 group by key, window_end, window_start emit within interval '2' second"
        ),
    ),
}

OF_ROOM = f'FROM TUMBLE(TABLE "room-1", {MINUTE})'
IN_MINUTES = "window: {size: 1m}"
SHORT = [
    # Conditions: each form of an expression.
    (
        f"where: 'temperature IN (1, 2.5, -3)', {IN_MINUTES}, aggregate: [avg]",
        f"SELECT avg(COLUMNS(*)) {OF_ROOM} WHERE temperature IN (1, 2.5, -3) {BY}",
    ),
    (
        f"where: NOT temperature IS NULL, {IN_MINUTES}, aggregate: [avg]",
        f"SELECT avg(COLUMNS(*)) {OF_ROOM} WHERE NOT temperature IS NULL {BY}",
    ),
    (
        f"where: key <> 'it''s' AND temperature < 1e3, {IN_MINUTES}, aggregate: [avg]",
        f"SELECT avg(COLUMNS(*)) {OF_ROOM} WHERE key <> 'it''s' AND temperature < 1e3 {BY}",
    ),
    (
        f"where: case when temperature > 0 then true else key = 'a' end, {IN_MINUTES}, aggregate: [avg]",
        f"SELECT avg(COLUMNS(*)) {OF_ROOM} WHERE case when temperature > 0 then true else key = 'a' end {BY}",
    ),
    (
        f"where: temperature % 2 = 0, {IN_MINUTES}, aggregate: [count]",
        f"SELECT count(COLUMNS(*)) {OF_ROOM} WHERE temperature % 2 = 0 {BY}",
    ),
    (
        f"where: temperature BETWEEN 0 AND 9 AND TRUE, {IN_MINUTES}, aggregate: [max]",
        f"SELECT max(COLUMNS(*)) {OF_ROOM} WHERE temperature BETWEEN 0 AND 9 AND TRUE {BY}",
    ),
    # Computed fields.
    (
        f"select: {{t: 'round(temperature, 1)'}}, {IN_MINUTES}, aggregate: [max]",
        f"SELECT max(round(temperature, 1)) AS t_max {OF_ROOM} {BY}",
    ),
    (
        f"select: {{u: sqrt(temperature), t: 'power(temperature, 2)'}}, {IN_MINUTES}, aggregate: {{u: [max], t: [avg]}}",
        f"SELECT max(sqrt(temperature)) AS u_max, avg(power(temperature, 2)) AS t_avg {OF_ROOM} {BY}",
    ),
    (
        f"select: {{t: 'least(temperature, 1)'}}, {IN_MINUTES}, aggregate: [min, last]",
        f"SELECT min(least(temperature, 1)) AS t_min, last(least(temperature, 1)) AS t_last {OF_ROOM} {BY}",
    ),
    (
        f"select: {{t: (temperature - 32) / 1.8}}, {IN_MINUTES}, aggregate: [range]",
        f"SELECT range((temperature - 32) / 1.8) AS t_range {OF_ROOM} {BY}",
    ),
    ("select: {t: -temperature}", 'SELECT -temperature AS t FROM "room-1"'),
    (
        "select: {t: case when temperature > 1 then 1 end}",
        'SELECT case when temperature > 1 then 1 end AS t FROM "room-1"',
    ),
    ("where: temperature > 3", 'SELECT * FROM "room-1" WHERE temperature > 3'),
    # Windows.
    (
        "window: {size: 90s, slide: 1.5s}, aggregate: [sum]",
        f"SELECT sum(COLUMNS(*)) FROM HOP(TABLE \"room-1\", INTERVAL '1.5' SECOND, INTERVAL '90' SECOND) {BY}",
    ),
    (
        "window: {size: 500ms}, aggregate: [sum]",
        f"SELECT sum(COLUMNS(*)) FROM TUMBLE(TABLE \"room-1\", INTERVAL '500' MILLISECONDS) {BY}",
    ),
    (
        "window: {size: 10m, slide: 5m, offset: 2m}, aggregate: [sum]",
        f"SELECT sum(COLUMNS(*)) FROM HOP(TABLE \"room-1\", INTERVAL '5' MINUTE, INTERVAL '10' MINUTE, OFFSET => INTERVAL '2' MINUTE) {BY}",
    ),
    (
        "window: {size: 3mo, zone: Asia/Tokyo}, aggregate: [max]",
        f"SELECT max(COLUMNS(*)) FROM TUMBLE(TABLE \"room-1\", INTERVAL '3' MONTH, ZONE => 'Asia/Tokyo') {BY}",
    ),
    # Aggregates.
    (
        f"{IN_MINUTES}, aggregate: [quantiles: [0.05, 0.5, 0.95]]",
        f"SELECT quantile(COLUMNS(*), 0.05), quantile(COLUMNS(*), 0.5), quantile(COLUMNS(*), 0.95) {OF_ROOM} {BY}",
    ),
    (
        f"{IN_MINUTES}, aggregate: [first, last, top: 10]",
        f"SELECT first(COLUMNS(*)), last(COLUMNS(*)), top(COLUMNS(*), 10) {OF_ROOM} {BY}",
    ),
    # Conditions on figures.
    (
        f"{IN_MINUTES}, aggregate: [top: 2], having: temperature_top2 IS NOT NULL",
        f"SELECT top(COLUMNS(*), 2) {OF_ROOM} {BY} HAVING temperature_top2 IS NOT NULL",
    ),
    (
        f"{IN_MINUTES}, aggregate: [max, min], having: temperature_max - temperature_min > 5",
        f"SELECT max(COLUMNS(*)), min(COLUMNS(*)) {OF_ROOM} {BY} HAVING max(temperature) - min(temperature) > 5",
    ),
    (
        f"{IN_MINUTES}, aggregate: [count], having: key = 'a' OR temperature_count > 1",
        f"SELECT count(COLUMNS(*)) {OF_ROOM} {BY} HAVING key = 'a' OR COUNT(temperature) > 1",
    ),
    # Options.
    (
        f"{IN_MINUTES}, aggregate: [avg], replicas: 1, parts: 16",
        f"SELECT avg(COLUMNS(*)) {OF_ROOM} {BY} {WITHIN} WITH (replicas = 1, parts = '16')",
    ),
    (
        f"{IN_MINUTES}, aggregate: [avg], policy: {{failure: delay}}, margin: 0.1s",
        f"SELECT avg(COLUMNS(*)) {OF_ROOM} {BY} {WITHIN} WITH (policy = (failure = 'delay'), margin = '0.1s')",
    ),
]
"""Queries that read room-1, whose bound is 2 s."""


def from_file(query: str) -> Deployment:
    return parse_deployment(f"{STREAMS}{FIRST}  q: {query}\n", "d.yaml").deployment


def check_same(one: Deployment, other: Deployment) -> None:
    """Compare; what is recorded, of which alone the results are made, is equal byte for byte."""
    assert one == other
    assert to_text(AppliedQuery("q", one)) == to_text(AppliedQuery("q", other))


@pytest.mark.parametrize("case", PAIRS)
def test_a_statement_is_the_query_of_the_file(case: str) -> None:
    in_file, statement = PAIRS[case]

    declared = parse_deployment_sql(
        f"{STATEMENTS}{FIRST_SQL}CREATE QUERY q AS {statement}", "d.sql"
    )

    check_same(declared.deployment, from_file(in_file))


@pytest.mark.parametrize(("in_file", "statement"), SHORT)
def test_a_short_statement_is_the_query_of_the_file(in_file: str, statement: str) -> None:
    if "EMIT" not in statement:
        statement = f"{statement} {WITHIN}"
    declared = parse_deployment_sql(
        f"{STATEMENTS}{FIRST_SQL}CREATE QUERY q AS {statement}", "d.sql"
    )
    check_same(declared.deployment, from_file(f"{{from: [room-1], {in_file}, bound: 2s}}"))
    assert len(PAIRS) + len(SHORT) >= 50


def test_settings_are_those_of_the_file() -> None:
    http = "{listen: '0.0.0.0:9000', tls: {certificate: c.pem, key: k.pem}}"
    head = f"clock: wall\nprefix: plant-7.\nhttp: {http}\n"
    query = "{from: [room-1], bound: 2s}"
    file = parse_deployment(f"{STREAMS}{FIRST}  q: {query}\n{head}", "d.yaml").deployment
    settings = (
        "SET clock = 'wall'; SET prefix = 'plant-7.'; SET http = (listen = '0.0.0.0:9000',"
        " tls = (certificate = 'c.pem', key = 'k.pem'));"
    )

    declared = parse_deployment_sql(
        f'{settings}{STATEMENTS}{FIRST_SQL}CREATE QUERY q AS SELECT * FROM "room-1" {WITHIN};',
        "d.sql",
    )

    assert declared.deployment == file
