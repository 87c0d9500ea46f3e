"""Input of sensors that send readings: spooled, acknowledged, then sent.

The only sensor of this version is a file that `slackwater ingest` submits at run time, as a small
JSON job in the proxy's inbox. It is handled like any sensor: readings get their ids in the spool
before the position advances, and only spooled readings are sent. A proxy killed between any two
steps therefore neither loses nor duplicates a reading: spooled readings are sent from the spool,
all others are read again from the file.

A job that fails, or cannot be completed, is renamed ``NAME.refused`` and contains the reason. If an
archive is truncated, the readings before the damage are ingested, and the reason gives the next
line: these readings may have been sent, and used in answers, long before the damage was detected.

Boundaries follow the clock, since sensors may have no readings to send; with ``expect_every`` or
``clock: data`` they derive from the readings. A watermark is spooled before it is sent (rule-9).
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from slackwater.codec.results import format_time
from slackwater.formats.pieces import PIECE_BYTES_DEFAULT
from slackwater.model.errors import SlackwaterError
from slackwater.model.limits import FOREVER, NEVER
from slackwater.proxy.replay import PIECE_BYTES_PACED, Due, Replay
from slackwater.proxy.rules import live_rules
from slackwater.proxy.shell import InputContext
from slackwater.proxy.sourcelog import SourceLog
from slackwater.proxy.spool import PushBackError
from slackwater.proxy.spooled import SpooledLog
from slackwater.runtime.security.private import make_private, write_atomically
from slackwater.runtime.service.parts import INGEST_LINE, INGEST_LINES

_log = logging.getLogger(__name__)
RETRY_US: Final = 20_000
FULL_RETRY_US: Final = 500_000
LOOK_EVERY_US: Final = 500_000
SPEED_MAX: Final = 1e9
PAUSE_US_MAX: Final = 366 * 86_400_000_000
"""Maximum pause in wall time between two readings of a file; longer ones are leaps."""


@dataclass(frozen=True, slots=True)
class SharedStart:
    """The start of several jobs: ``event_us``, a time in the files, is ``wall_us``."""

    event_us: int
    wall_us: int


@dataclass(frozen=True, slots=True)
class IngestJob:
    """A file to ingest. ``name`` identifies the job, ``file_name`` the progress of its file.

    With ``as_now`` all times are shifted so that the first reading is now, or with ``shared`` so
    that several files keep their distances. A reading is due once
    its distance from the first, divided by ``speed``, has passed; without a speed (and not
    ``as_now``) all readings are due at once.

    The files ``then`` are read after it, one after another, as a history in several files.
    """

    name: str
    file: Path
    speed: float | None = None
    as_now: bool = False
    shared: SharedStart | None = None
    then: tuple[Path, ...] = ()
    number: int = 0
    """The place of ``file`` among the files of the job."""
    lines: int | None = None
    """The lines of ``file``, for the progress; None where they were not counted."""

    @property
    def file_name(self) -> str:
        """The name of the positions in ``file``; those of the first one have the job's name."""
        return f"{self.name}+{self.number}" if self.number else self.name

    @property
    def next(self) -> IngestJob | None:
        """The job with the next file."""
        if not self.then:
            return None
        number = self.number + 1
        return replace(self, file=self.then[0], then=self.then[1:], number=number, lines=None)

    @property
    def pace(self) -> float | None:
        """Replay speed relative to event time; None: unpaced."""
        return self.speed or (1.0 if self.as_now else None)


def inbox_of(data_dir: Path, stream: str) -> Path:
    """Return the inbox for a stream's jobs: `NAME.json`, written elsewhere and renamed."""
    return data_dir / "proxy" / f"{stream}.inbox"


def hand_over(
    data_dir: Path,
    stream: str,
    name: str,
    file: Path,
    *,
    speed: float | None = 1.0,
    as_now: bool = True,
    shared: SharedStart | None = None,
    then: Sequence[Path] = (),
    lines: int | None = None,
) -> None:
    """Put a job into a stream's inbox, unless a job of this name exists."""
    inbox = inbox_of(data_dir, stream)
    make_private(inbox)
    if any(inbox.glob(f"{name}.*")):
        return
    job: dict[str, Any] = {"file": str(file.resolve()), "speed": speed, "as_now": as_now}
    if lines is not None:
        job["lines"] = lines
    if shared is not None:
        job |= {"event_us": shared.event_us, "wall_us": shared.wall_us}
    if then:
        job["then"] = [str(each.resolve()) for each in then]
    write_atomically(inbox / f"{name}.json", json.dumps(job))


def stop_jobs(data_dir: Path, stream: str) -> list[Path]:
    """End the jobs in a stream's inbox, the running one too; return their files.

    What has been read stays. The stream's proxy notices within ``LOOK_EVERY_US``.
    """
    stopped = []
    for path in sorted(inbox_of(data_dir, stream).glob("*.json")):
        with contextlib.suppress(FileNotFoundError):  # it has ended meanwhile
            if end_from(path) is None:
                with contextlib.suppress(ValueError):
                    stopped.append(job_from(path).file)
                path.replace(path.with_suffix(".stopped"))
    return stopped


def hand_over_end(data_dir: Path, stream: str, name: str, end_us: int) -> None:
    """Put the end of a stream's history (us) into its inbox, for after the files that are there."""
    inbox = inbox_of(data_dir, stream)
    make_private(inbox)
    write_atomically(inbox / f"{name}.json", json.dumps({"end_us": end_us}))


def end_from(path: Path) -> int | None:
    """Return the end in a job that is none of a file; None for other jobs."""
    try:
        data: Any = json.loads(path.read_text())
    except (ValueError, RecursionError):
        return None
    end_us = data.get("end_us") if isinstance(data, dict) and "file" not in data else None
    return end_us if isinstance(end_us, int) and NEVER < end_us < FOREVER else None


def job_from(path: Path) -> IngestJob:
    """Parse a job file; ``ValueError`` if invalid."""
    try:
        data: Any = json.loads(path.read_text())
    except RecursionError:
        raise ValueError("not JSON") from None
    if not isinstance(data, dict) or not isinstance(data.get("file"), str):
        raise ValueError("it has no field file with a path")
    speed = data.get("speed")
    if speed is not None and (not isinstance(speed, int | float) or not 0 < speed < SPEED_MAX):
        raise ValueError(f"speed {speed!r} is not between 0 and {SPEED_MAX:g}")
    start = data.get("event_us"), data.get("wall_us")
    match start:
        case None, None:
            shared = None
        case int(event_us), int(wall_us):
            shared = SharedStart(event_us, wall_us)
        case _:
            raise ValueError(f"event_us and wall_us {start} are not two whole numbers")
    then = data.get("then", [])
    if not isinstance(then, list) or not all(isinstance(each, str) for each in then):
        raise ValueError(f"then {then!r} is no list of paths")
    return IngestJob(
        name=path.stem,
        file=Path(data["file"]),
        speed=None if speed is None else float(speed),
        as_now=bool(data.get("as_now")),
        shared=shared,
        then=tuple(map(Path, then)),
        lines=lines if isinstance(lines := data.get("lines"), int) and lines > 0 else None,
    )


def refuse(path: Path, why: str) -> None:
    """Rename a failed or incomplete job and store the reason in it."""
    _log.error("ingest job %s is refused: %s", path.name, why)
    try:
        job: Any = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        job = None
    reported = (job if isinstance(job, dict) else {}) | {"refused": why}
    part = path.with_suffix(".part")
    part.write_text(json.dumps(reported))
    part.replace(path.with_suffix(".refused"))
    path.unlink(missing_ok=True)


class SensorInput:
    """Input of sensors; today the inbox is the only one."""

    def __init__(self, context: InputContext) -> None:
        self._context = context
        spec = context.spec
        self._from_readings = context.deployment.clock == "data"
        self._spooled = SpooledLog(context, live_rules(context, spec.name))
        self._inbox = inbox_of(context.spool.path.parent.parent, spec.name)
        make_private(self._inbox)
        self._running: _Running | None = None
        self._look_at_us = 0
        self._flush_at_us: int | None = None
        self._blank = 0
        self._logged_full = False

    @property
    def logs(self) -> Sequence[SourceLog]:
        """The one source log."""
        return (self._spooled.log,)

    def begin(self) -> None:
        """Take over the log, compare it with the spool, and send unsent records."""
        self._spooled.begin()

    # Steps.

    def step(self, now_us: int) -> int:
        """Read, spool and send; at a cut point also a boundary."""
        context = self._context
        self._spooled.acknowledge()
        if not context.quarantine.settle():
            return now_us + RETRY_US
        if not self._spooled.send():
            return now_us + RETRY_US
        try:
            return self._take_in(now_us)
        except PushBackError as full:
            if not self._logged_full:
                _log.warning("%s; reading waits until there is room", full)
            self._logged_full = True
            return now_us + FULL_RETRY_US

    def _take_in(self, now_us: int) -> int:
        context, core = self._context, self._spooled.core
        event_us = context.event_us(now_us)
        job = self._job(now_us)
        if job is not None and self._read(job, now_us):
            return now_us
        paced = event_us is not None
        due = self._flush_at_us is None or (event_us is not None and event_us >= self._flush_at_us)
        if core.waiting or (paced and due):
            self._flush(None if job is not None and not job.by_clock else event_us)
        if event_us is not None and due:
            self._flush_at_us = core.next_flush_us(event_us, context.default_grid)
        if job is not None:
            return min(now_us + RETRY_US, job.wake_us(now_us))
        if self._from_readings and core.next_id:
            self._end_history()
        if self._flush_at_us is None or not paced:
            return now_us + LOOK_EVERY_US
        return min(now_us + LOOK_EVERY_US, context.wall_us(self._flush_at_us))

    def _flush(self, clock_us: int | None) -> None:
        """Write waiting readings to the spool, then to the log."""
        running = self._running
        positions = (
            None if running is None else {running.job.file_name: self._spooled.core.position}
        )
        if self._spooled.flush(clock_us, positions):
            self._logged_full = False

    # Jobs.

    def _job(self, now_us: int) -> _Running | None:
        if now_us < self._look_at_us:
            return self._running
        self._look_at_us = now_us + LOOK_EVERY_US
        if self._running is not None and not self._running.path.exists():
            _log.info("%s is read no further: it was stopped", self._running.job.file)
            self._running = None
        if self._running is None:
            for path in sorted(self._inbox.glob("*.json")):
                try:
                    if self._from_readings and (end_us := end_from(path)) is not None:
                        self._spooled.core.advance_watermark(end_us)
                        self._flush(None)
                        path.replace(path.with_suffix(".done"))
                        continue
                    job = job_from(path)
                    self._running = _Running(self._context, job, path, now_us)
                except (SlackwaterError, OSError, ValueError) as error:
                    refuse(path, str(error))
                    continue
                break
        return self._running

    def _read(self, running: _Running, now_us: int) -> bool:
        """Read a part of the file; False if nothing is due."""
        core, context = self._spooled.core, self._context
        # At most one record, because a flush is spooled as a unit.
        due = running.take(now_us, max(1, core.rules.rows_max - core.waiting))
        if due is None:
            if running.replay.exhausted and not core.waiting:
                self._finish(running, now_us)
            return False
        if (overlap := running.overlap(due)) is not None:
            refuse(running.path, overlap)
            self._running = None
            return False
        shifted = running.shift(due)
        entries = list(due.entries)
        for refused in context.offer(core, shifted.arrived, now_us, str):
            entries += shifted.refused(refused)
        self._blank += due.blank
        running.position = due.arrived.position
        name = running.job.file_name  # files in two folders may have equal names
        context.quarantine.put(
            [replace(entry, position=f"{name}:{entry.position}") for entry in entries], now_us
        )
        if core.is_full and context.quarantine.settle():
            self._flush(None)
        return True

    def _end_history(self) -> None:
        """Raise the watermark to the end of the last window (trace-24).

        The queries may be registered, and their windows known, only after a short file has ended.
        """
        core = self._spooled.core
        end_us = self._context.end_of_history(core.largest)
        if end_us is not None:
            core.advance_watermark(end_us)
            self._flush(None)

    def _finish(self, running: _Running, now_us: int) -> None:
        damage, following = running.replay.damage, running.job.next
        if damage is None and following is not None:
            _log.info("ingested %s", running.job.file)
            try:
                self._running = _Running(self._context, following, running.path, now_us)
            except (SlackwaterError, OSError, ValueError) as error:
                refuse(running.path, str(error))
                self._running = None
            return
        if damage is None:
            with contextlib.suppress(FileNotFoundError):  # stopped at its very end
                running.path.replace(running.path.with_suffix(".done"))
            _log.info("ingested %s", running.job.file)
        else:
            refuse(running.path, f"{damage}; {_taken_in(running.position)}")
        self._running = None
        self._look_at_us = 0  # the history goes on if another job waits

    def detail(self) -> dict[str, int]:
        """Return counters for the heartbeat."""
        return {
            "readings": self._spooled.core.next_id,
            "blank": self._blank,
            "spool_bytes": self._context.spool.bytes_held,
            "ingesting": int(self._running is not None),
            **({} if self._running is None else self._running.progress),
            **self._context.counts(),
        }

    def leave(self) -> None:
        """Delete from the spool what the log has, so that a restart does not send it again."""
        self._spooled.acknowledge()

    def close(self) -> None:
        """Close the spool; its content is kept."""
        self._context.spool.close()


class _Running:
    """A running job. The shift of its times is stored with its progress and never changes."""

    def __init__(self, context: InputContext, job: IngestJob, path: Path, now_us: int) -> None:
        self.job = job
        self.path = path
        self.by_clock = context.spec.expect_every_us is None
        piece_bytes = PIECE_BYTES_DEFAULT if job.pace is None else PIECE_BYTES_PACED
        name = job.file_name
        self.replay = Replay(
            context.spec,
            job.file,
            piece_bytes=piece_bytes,
            guard=context.guard(name),
            pause_us_max=None if job.pace is None else int(PAUSE_US_MAX * job.pace),
        )
        spool = context.spool
        self._disorder_us = context.spec.disorder_us
        first = self.replay.due_us(1)
        began = spool.position(f"{name}/began")
        if not began:
            began = now_us if job.shared is None else job.shared.wall_us
            largest = spool.spooled().largest
            positions = {f"{name}/began": began, f"{name}/after": largest}
            spool.append((), largest, positions)
        self._began_us = began
        self._first_us = began if first is None else first
        if job.shared is not None:
            self._first_us = job.shared.event_us
        self._after_us = spool.position(f"{name}/after") if job.number else NEVER
        """The largest time before this file."""
        self._largest = NEVER
        self.position = spool.position(name)
        """The next line to be read."""
        for due in self.replay.skip(self.position):
            context.quarantine.count_all(due.entries)
            self._largest = max(self._largest, int(due.arrived.stimes.max(initial=NEVER)))

    @property
    def progress(self) -> dict[str, int]:
        """Return the details of the heartbeat on how far the file is read."""
        lines = self.job.lines
        done = max(0, self.position - 1)
        return {INGEST_LINE: done} | ({} if lines is None else {INGEST_LINES: max(done, lines)})

    def take(self, now_us: int, readings_max: int) -> Due | None:
        """Return the readings due now."""
        pace = self.job.pace
        if pace is None:
            return self.replay.take(FOREVER, readings_max)
        return self.replay.take(
            self._first_us + int((now_us - self._began_us) * pace), readings_max
        )

    def overlap(self, due: Due) -> str | None:
        """Return why the file does not follow the files before it in time; None if it does.

        A reading is late for its own file's sake if an earlier line of it is newer. If only the
        files before are newer, the readings after it may all be late: that is no fault of a device.
        """
        times = due.arrived.stimes
        if not len(times) or self._after_us == NEVER:
            return None
        before = np.maximum.accumulate(np.concatenate(([self._largest], times)))
        self._largest = int(before[-1])
        limit_us = self._after_us - self._disorder_us
        wrong = np.flatnonzero((times < limit_us) & (before[:-1] < limit_us))
        if not len(wrong):
            return None
        at = int(wrong[0])
        return (
            f"{self.job.file}:{due.lines[at]}: the reading of {format_time(int(times[at]))} is more"
            f" than the stream's disorder older than {format_time(self._after_us)}, which is in a"
            " file before: give files whose times do not overlap, or sort them into one"
        )

    def shift(self, due: Due) -> Due:
        """Return the readings with shifted times."""
        if not self.job.as_now:
            return due
        arrived = due.arrived
        stimes = arrived.stimes + (self._began_us - self._first_us)
        return replace(due, arrived=replace(arrived, stimes=stimes))

    def wake_us(self, now_us: int) -> int:
        """Return when the next reading is due."""
        due, pace = self.replay.due_us(1), self.job.pace
        if due is None or pace is None:
            return now_us
        return self._began_us + int((due - self._first_us) / pace)


def _taken_in(position: int) -> str:
    if not position:
        return "none of it has been ingested"
    return f"the lines before {position} have been ingested, the others have not"
