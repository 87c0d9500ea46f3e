"""``Producer``: sends readings to a stream, in batches, from a thread of its own.

Readings go to the HTTP input of the stream's proxy, or to the topic that the stream declares; never
to a source log, which has one writer. A batch is repeated until it is answered, always with the
same key, and the receiver counts it once.

A sender that keeps its state (a file, or with a topic its ``producer_id``) is exactly once over its
restarts as well: it sends its readings in the same order again, from the reading number
``position`` on. What is before that has been acknowledged.
"""

from __future__ import annotations

import logging
import random
import secrets
import threading
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, get_args

from slackwater.producer.batches import Buffer, as_table, pieces_of, rows_per_part
from slackwater.producer.http_sink import HttpSink
from slackwater.producer.sink import Delivery, Format, ProducerError, Sink, TryAgain
from slackwater.producer.state import SenderState

_log = logging.getLogger(__name__)
URL_DEFAULT: Final = "http://127.0.0.1:8088"
BATCH_READINGS_DEFAULT: Final = 50_000
BATCH_READINGS_MAX: Final = 100_000
NAMED_READINGS: Final = 50_000
"""Readings per request if they have an id, whatever ``batch_readings`` is: the parts of an id are
numbered, so senders with different settings must divide the readings equally."""
LINGER_S_DEFAULT: Final = 0.05
WAITING_READINGS_MAX: Final = 1_000_000
BACK_OFF_S_MIN: Final = 0.1
BACK_OFF_S_MAX: Final = 10.0
ID_CHARS_MAX: Final = 200


@dataclass(slots=True)
class _Named:
    """Readings with an id from the caller: the parts not yet sent."""

    parts: deque[Delivery]

    @property
    def readings(self) -> int:
        return sum(len(part.table) for part in self.parts)


class Producer:
    """Sends readings to one stream. Thread-safe; a context manager.

    ``send`` accepts a mapping of columns (numpy arrays, lists, Arrow arrays; a single value is
    repeated in all rows), one reading as a mapping, a list of readings, an Arrow table or record
    batch, or a data frame. Names are those of the stream's declaration.
    """

    def __init__(
        self,
        stream: str | None = None,
        *,
        url: str = URL_DEFAULT,
        token: str | None = None,
        token_file: Path | str | None = None,
        ca_file: Path | str | None = None,
        state: Path | str | None = None,
        bootstrap: str | None = None,
        topic: str | None = None,
        format: Format = "json",  # noqa: A002 - the deployment file's word
        config: Mapping[str, Any] | None = None,
        producer_id: str | None = None,
        record_key: str | None = None,
        batch_readings: int = BATCH_READINGS_DEFAULT,
        linger_s: float = LINGER_S_DEFAULT,
    ) -> None:
        """Start a producer: to a ``stream`` over HTTP, or to a ``topic`` at ``bootstrap``.

        Args:
            stream: the stream's name.
            url: the address of its proxy.
            token: a bearer token of the stream.
            token_file: a file in the format of the proxy's token file; its first token is used.
            ca_file: certificates with which the proxy's certificate is verified.
            bootstrap: the address of Kafka.
            topic: the topic that a stream declares.
            state: a file for exactly-once delivery across restarts of the sender.
            format: of the topic's messages as declared: ``json``, ``json-array`` or
                ``json-columns``.
            config: more settings of confluent-kafka, such as those of TLS.
            producer_id: the sender's identity in a topic, for exactly-once across its restarts.
            record_key: the column of which each message has its key, in a topic of ``json``.
            batch_readings: maximum readings of a batch; readings with an id are divided without it.
            linger_s: maximum wait for a batch to fill, in seconds.
        """
        if not 0 < batch_readings <= BATCH_READINGS_MAX:
            raise ProducerError(f"batch_readings {batch_readings} is not 1 to {BATCH_READINGS_MAX}")
        self._batch_readings, self._linger_s = batch_readings, linger_s
        self._sink: Sink
        if topic is not None or bootstrap is not None:
            if topic is None or bootstrap is None or stream is not None or state is not None:
                raise ProducerError(
                    "a topic needs topic and bootstrap, and neither stream nor state"
                )
            self._state = SenderState(None)
            settings = {**(config or {}), "bootstrap.servers": bootstrap}
            self._sink = self._to_topic(topic, format, settings, producer_id, record_key)
        elif record_key is not None:
            raise ProducerError("record_key is for a topic: requests have no keys of records")
        elif stream is None:
            raise ProducerError("name a stream, or a topic and bootstrap")
        else:
            secret = _first_token(Path(token_file)) if token is None and token_file else token
            self._sink = HttpSink(url, stream, secret, None if ca_file is None else Path(ca_file))
            # Last, since it locks the file.
            self._state = SenderState(None if state is None else Path(state))
        self._queue: deque[Buffer | _Named] = deque()
        self._changed = threading.Condition()
        self._is_sending = self._flushing = self._stopping = False
        self._error: Exception | None = None
        self._counts: Counter[str] = Counter()
        self._random = random.Random(secrets.randbits(64))
        self._thread = threading.Thread(target=self._run, name="producer", daemon=True)
        self._thread.start()

    def _to_topic(
        self,
        topic: str,
        format_: Format,
        config: Mapping[str, Any],
        producer_id: str | None,
        record_key: str | None,
    ) -> Sink:
        from slackwater.producer.kafka_sink import KafkaSink

        if format_ not in get_args(Format):
            raise ProducerError(f"format {format_!r} is not one of {', '.join(get_args(Format))}")
        if record_key is not None and format_ != "json":
            raise ProducerError(
                f"record_key is for format json: a message of {format_} has several readings"
            )
        sink = KafkaSink(topic, format_, config, producer_id, record_key)
        self._state.position = sink.position()
        return sink

    # Called by the caller's thread.

    @property
    def position(self) -> int:
        """Readings acknowledged, over all runs with this state; without those with an id."""
        return self._state.position

    @property
    def counts(self) -> dict[str, int]:
        """Readings acknowledged in this run: ``accepted``, and those refused, by reason."""
        with self._changed:
            return dict(self._counts)

    def send(self, readings: Any, *, id: str | None = None) -> None:  # noqa: A002
        """Enqueue readings; block while ``WAITING_READINGS_MAX`` readings are queued.

        With an ``id``, these readings count once as a unit: an id that was acknowledged, for any
        producer, is not counted again while the receiver stores it (a day).

        Raises:
            ProducerError: the readings have an unsupported form, or earlier ones were refused.
        """
        piece = pieces_of(readings)
        named = None if id is None else _Named(_parts(as_table(piece), id))
        with self._changed:
            self._changed.wait_for(
                lambda: self._error or self._stopping or self._waiting < WAITING_READINGS_MAX
            )
            self._raise()
            if named is not None:
                self._queue.append(named)
            else:
                if not self._queue or isinstance(self._queue[-1], _Named):
                    self._queue.append(Buffer())
                last = self._queue[-1]
                assert isinstance(last, Buffer)
                last.add(piece)
            self._changed.notify_all()

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all readings are acknowledged.

        Raises:
            ProducerError: readings were refused.
            TimeoutError: not all are acknowledged in time; sending continues.
        """
        with self._changed:
            self._flushing = True
            self._changed.notify_all()
            done = self._changed.wait_for(lambda: self._error or self._is_idle, timeout_s)
            self._flushing = False
            self._raise()
            if not done:
                raise TimeoutError(f"{self._waiting} readings are not acknowledged yet")

    def close(self, timeout_s: float | None = None) -> None:
        """Flush, then stop. A closed or failed producer sends no more readings."""
        try:
            if not self._stopping:
                self.flush(timeout_s)
        finally:
            self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._stop()

    @property
    def _waiting(self) -> int:
        return sum(entry.readings for entry in self._queue)

    @property
    def _is_idle(self) -> bool:
        return not self._is_sending and not self._waiting

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error
        if self._stopping:
            raise ProducerError("the producer is closed")

    def _stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()
        self._sink.close()
        self._state.close()

    # Called by the producer's thread.

    def _run(self) -> None:
        try:
            while (batch := self._next()) is not None:
                self._deliver(batch)
        except Exception as error:  # noqa: BLE001 -- the caller's next call raises it
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _next(self) -> Delivery | None:
        """Wait for a batch and return it; None if the producer stops."""
        with self._changed:
            self._is_sending = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._stopping or self._waiting)
            if self._stopping:
                return None
            while not self._queue[0].readings:
                self._queue.popleft()
            self._is_sending = True
            entry = self._queue[0]
            if isinstance(entry, _Named):
                return entry.parts.popleft()
            taken = self._cut(entry)
        if taken is None:
            return None
        self._state.begin(len(taken))
        key = f"{self._state.producer}-{self._state.position}"
        return Delivery(taken, key, self._state.position + len(taken))

    def _cut(self, buffer: Buffer) -> Any:
        """Return the next batch of a buffer.

        After a restart it has the same number of readings as the batch that was not acknowledged.
        """
        again = self._state.sending
        wanted = again or self._batch_readings
        self._changed.wait_for(
            lambda: self._stopping or buffer.has(wanted) or self._must_end(buffer),
            None if again else self._linger_s,
        )
        if self._stopping:
            return None
        if again and not buffer.has(again):
            raise ProducerError(
                f"the batch from reading {self._state.position} on had {again} readings before the "
                f"restart, and now has fewer: send all readings from there on again"
            )
        return buffer.take(wanted, exact=bool(again))

    def _must_end(self, buffer: Buffer) -> bool:
        return self._flushing or buffer.is_cut or len(self._queue) > 1

    def _deliver(self, batch: Delivery) -> None:
        wait_s = BACK_OFF_S_MIN
        while not self._stopping:
            try:
                counts = self._sink.deliver(batch)
            except TryAgain as why:
                _log.warning("%s; retrying", why)
                pause_s = max(why.after_s, wait_s * self._random.uniform(0.5, 1.0))
                wait_s = min(2 * wait_s, BACK_OFF_S_MAX)
                with self._changed:
                    self._changed.wait_for(lambda: self._stopping, pause_s)
                continue
            if batch.position is not None:
                self._state.acknowledge(batch.position)
            with self._changed:
                self._counts.update(counts)
            return


def _parts(table: Any, id_: str) -> deque[Delivery]:
    if not 0 < len(id_) <= ID_CHARS_MAX or not id_.isascii() or not id_.isprintable():
        raise ProducerError(f"an id must have 1 to {ID_CHARS_MAX} visible ASCII characters")
    step = rows_per_part(table, NAMED_READINGS)
    starts = range(0, len(table), step)
    return deque(
        Delivery(table.slice(start, step), id_ if len(starts) == 1 else f"{id_}/{i}", None)
        for i, start in enumerate(starts)
    )


def _first_token(path: Path) -> str:
    for line in path.read_text().splitlines():
        if line.strip() and not line.strip().startswith("#"):
            return line.strip()
    raise ProducerError(f"{path} contains no token")
