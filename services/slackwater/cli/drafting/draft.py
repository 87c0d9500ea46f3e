"""Writes a deployment file from guesses, each with its reason as a comment."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from slackwater.cli.drafting.guesses import DraftedStream, field_name
from slackwater.cli.drafting.measured import MeasuredReadings, nice
from slackwater.cli.drafting.times import DAY_US
from slackwater.cli.tables import short_time, visible
from slackwater.codec.results import format_time
from slackwater.deployment.yaml_text import scalar
from slackwater.formats.columns import time_of
from slackwater.model.durations import format_duration_us

COLUMN: Final = 40
"""Where a comment begins, if the declaration before it is shorter."""
DISORDER_MIN_US: Final = 100_000
DISORDER_MAX_US: Final = 60_000_000
"""A draft waits no longer than this for readings out of order."""
LINE_CHARS: Final = 110
LATE_SHARE_MAX: Final = 0.001
EXPECT_MIN_US: Final = 5_000_000
READINGS_PER_WINDOW: Final = 10
WINDOWS_US: Final = (1_000_000, 10_000_000, 60_000_000, 600_000_000, 3_600_000_000, DAY_US)
SHOWN_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class MeasuredStream:
    """The guesses of a stream, and what was measured of it, if anything."""

    draft: DraftedStream
    measured: MeasuredReadings | None = None


def deployment_text(streams: Sequence[MeasuredStream], command: str) -> str:
    """Return the deployment file."""
    lines = [
        f"# Drafted by `{visible(command)}`: every line with a comment is a guess.",
        "# Check them, then: slackwater plan FILE",
        "apiVersion: slackwater/v1",
        "clock: wall",
        "streams:",
    ]
    for each in streams:
        lines += _stream(each)
    names = ", ".join(scalar(each.draft.name) for each in streams)
    size_us, why = _window(streams)
    lines += [
        "queries:",
        "  averages:",
        f"    from: [{names}]",
        _with(f"    window: {{size: {format_duration_us(size_us)}}}", why),
        "    aggregate: [count, avg, min, max]",
        _with("    bound: 2s", "X: the longest wait for a stream that is silent"),
    ]
    return "\n".join(lines) + "\n"


def _stream(each: MeasuredStream) -> Iterator[str]:
    draft, measured = each.draft, each.measured
    sample = draft.sample
    yield f"  {scalar(draft.name)}:"
    yield f"    # {visible(sample.origin)}: {_summary(each)}"
    if sample.topic is not None:
        yield _with(
            f"    topic: {{name: {scalar(sample.topic)}, format: {sample.format}}}",
            "read from its beginning; from: end skips what is there",
        )
    elif not draft.is_of_files:
        yield _with("    http: {}", "without a time it is posted: docs/howto/send-over-http.md")
    elif sample.format == "json":
        yield "    # Read from files; with `http: {}` the same JSON is posted."
    yield _key(draft)
    yield _time(draft)
    yield from _csv(draft)
    yield from _fields(draft)
    yield from _silence(each)
    if measured is not None and measured.refused:
        example = f", e.g. {visible(measured.example)}" if measured.example else ""
        yield f"    # {measured.refused:,} readings cannot be used and go to quarantine{example}"


def _summary(each: MeasuredStream) -> str:
    measured, sample = each.measured, each.draft.sample
    unreadable = f", {sample.unreadable} not JSON" if sample.unreadable else ""
    if measured is None:
        return f"{sample.rows:,} reading{'s' * (sample.rows != 1)}{unreadable}"
    begin, end = (_shown(us).partition(".")[0] for us in (measured.first_us, measured.last_us))
    many = f"{measured.count:,} reading{'s' * (measured.count != 1)}"
    return f"{many} of {begin} to {end} UTC{unreadable}"


def _key(draft: DraftedStream) -> str:
    sample = draft.sample
    name = "column" if sample.format == "csv" else "field"
    if draft.key is not None:
        values = list(dict.fromkeys(sample.columns[draft.key]))
        shown = ", ".join(visible(value) for value in values[:SHOWN_MAX])
        more = ", ..." if len(values) > SHOWN_MAX else ""
        return _with(f"    key: {{{name}: {scalar(draft.key)}}}", f"the device: {shown}{more}")
    if sample.named_keys:
        return _with("    key: {from: record}", "the key of the Kafka record")
    why = "one device: no column names it"
    if repeated := [n for n, texts in draft.texts.items() if 1 < len(texts) < sample.rows]:
        why = f"one device; or does {' or '.join(map(visible, repeated[:SHOWN_MAX]))} name it?"
    return _with(f"    key: {{value: {scalar(draft.name)}}}", why)


def _time(draft: DraftedStream) -> str:
    sample, guess = draft.sample, draft.time
    if guess is None:
        if sample.topic is not None:
            return _with("    time: {from: record}", "no time in the messages: the record's")
        return _with("    time: {from: arrival}", "no time in the readings: that of arrival")
    spec, one = guess.spec, "column" if sample.format == "csv" else "field"
    named = f"{one}: {scalar(guess.columns[0])}"
    if len(guess.columns) > 1:
        named = f"{one}s: [{', '.join(map(scalar, guess.columns))}]"
    form = f"unit: {spec.unit}" if spec.unit is not None else f'format: "{spec.format}"'
    zone = f", zone: {spec.zone}" if spec.zone is not None else ""
    why = f"{visible(guess.example)} is {_shown(guess.us)} UTC"
    if guess.is_local:
        why += "; no offset, read as UTC: add zone: Area/City if it is local"
    if guess.other is not None:
        why += f'; or is it "{guess.other}"? No reading tells day and month apart'
    return _with(f"    time: {{{named}, {form}{zone}}}", why)


def _csv(draft: DraftedStream) -> Iterator[str]:
    dialect = draft.sample.dialect
    parts = []
    if dialect.delimiter != ",":
        delimiter = "\\t" if dialect.delimiter == "\t" else dialect.delimiter
        parts.append(f'delimiter: "{delimiter}"')
    if dialect.decimal != ".":
        parts.append(f'decimal: "{dialect.decimal}"')
    if dialect.skip_lines:
        parts.append(f"skip_lines: {dialect.skip_lines}")
    if parts:
        lines = f"the header is line {dialect.skip_lines + 1}"
        yield _with(f"    csv: {{{', '.join(parts)}}}", lines)


def _fields(draft: DraftedStream) -> Iterator[str]:
    if draft.missing:
        texts = ", ".join(_number(each) if isinstance(each, float) else scalar(each)
                          for each in draft.missing)  # fmt: skip
        yield _with(f"    missing: [{texts}]", "stand for no value")
    if draft.values:
        pairs = ", ".join(f"{text}: {value}" for text, value in draft.values.items())
        yield _with(f"    values: {{{pairs}}}", "texts that are numbers")
    if all(name == source for name, source in draft.fields.items()):
        one_line = f"    fields: [{', '.join(map(scalar, draft.fields))}]"
        if len(one_line) <= 100:
            yield one_line
        else:
            yield "    fields:"
            yield from (f"      - {scalar(name)}" for name in draft.fields)
    else:
        yield "    fields:"
        yield from (f"      {scalar(n)}: {scalar(source)}" for n, source in draft.fields.items())
    left = [f"{visible(name)} ({why})" for name, why in draft.left_out]
    if left:
        yield f"    # Left out: {', '.join(left[:10])}{', ...' if len(left) > 10 else ''}"
    for name, values in list(draft.texts.items())[:SHOWN_MAX]:
        if len(values) <= 8:
            shown = ", ".join(visible(text) for text in values[:SHOWN_MAX])
            declared = f"{{{field_name(name, list(draft.fields))}: {scalar(name)}}}"
            line = f"    # `texts: {declared}` lets `where` compare it with {shown}"
            yield line[:LINE_CHARS] + ("..." if len(line) > LINE_CHARS else "")


def _silence(each: MeasuredStream) -> Iterator[str]:
    """Yield disorder and silence: files follow the clock, other sources declare a silence."""
    draft, measured = each.draft, each.measured
    is_file = draft.is_of_files
    arrives = draft.time is None and draft.sample.topic is None
    least = DISORDER_MIN_US if is_file else 0
    behind_us = 0 if measured is None else measured.behind_us
    disorder_us = max(least, nice(behind_us) if behind_us else 0)
    why = "no reading is older than one before it"
    if behind_us:
        why = f"a reading is at most {_span(behind_us)} older than one before it"
    if disorder_us > DISORDER_MAX_US and measured is not None:
        share_us = measured.disorder_us(LATE_SHARE_MAX)
        disorder_us = max(least, min(DISORDER_MAX_US, nice(share_us) if share_us else 0))
        late = measured.later_than(disorder_us)
        why += f"; {late:,} of {measured.count:,} will be late (quarantine)"
        why += ": is the file sorted?" if is_file else ""
    if not arrives:
        yield _with(f"    disorder: {format_duration_us(disorder_us)}", why)
    expect, spacing = "auto", "how long a usual silence is, is learned"
    if measured is not None and measured.stream_gap_us is not None:
        expect = format_duration_us(max(EXPECT_MIN_US, nice(2 * measured.stream_gap_us)))
        gap = measured.gap_us or measured.stream_gap_us
        spacing = (
            f"a device sends every {_span(gap)} (median); 99 % of the stream's gaps are at most"
            f" {_span(measured.stream_gap_us)}"
        )
    if is_file:
        yield f"    # Live, a longer silence would be a failure with `expect_every: {expect}`:"
        yield f"    # {spacing}."
    else:
        yield _with(f"    expect_every: {expect}", spacing)


def _window(streams: Sequence[MeasuredStream]) -> tuple[int, str]:
    gaps = [each.measured.gap_us for each in streams if each.measured and each.measured.gap_us]
    if not gaps:
        return 60_000_000, "the spacing of the readings is not known yet"
    wanted = READINGS_PER_WINDOW * max(gaps)
    size_us = next((size for size in WINDOWS_US if size >= wanted), WINDOWS_US[-1])
    return size_us, f"about {max(1, round(size_us / max(gaps))):,} readings of a device"


def parsed_times(draft: DraftedStream) -> Sequence[int | None]:
    """Return the times of a sample's readings, in us; those of records without a time in them."""
    sample, guess = draft.sample, draft.time
    if guess is None:
        return list(sample.stamps_us)
    parts = [sample.columns[name] for name in guess.columns]
    join = guess.spec.join
    return [time_of(join.join(texts), guess.spec) for texts in zip(*parts, strict=True)]


def keys_of_sample(draft: DraftedStream) -> Sequence[str]:
    """Return the key of each reading of a sample."""
    sample = draft.sample
    return [""] * sample.rows if draft.key is None else sample.columns[draft.key]


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def _span(us: float) -> str:
    """Format a measured duration: two digits are enough."""
    for unit, size in (("d", DAY_US), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000)):
        if us >= size:
            number = f"{us / size:.3g}" if us < 100 * size else f"{us / size:,.0f}"
            return f"{number} {'min' if unit == 'm' else unit}"
    return f"{us / 1_000:.3g} ms"


def _shown(us: int) -> str:
    return short_time(format_time(us))


def _with(declared: str, why: str) -> str:
    """Return a line with its comment; one that is too long stands above it."""
    line = f"{declared:<{COLUMN}}  # {why}"
    if len(line) <= LINE_CHARS:
        return line
    indent = " " * (len(declared) - len(declared.lstrip()))
    above = textwrap.wrap(why, LINE_CHARS - len(indent) - 2, break_long_words=False)
    return "\n".join([*(f"{indent}# {part}" for part in above), declared])
