"""A link between processes: a relay that counts bytes, can be cut, and can be thin, slow or lossy.

Both directions of a link have their own rate, which all connections share in order of arrival, as
on a line of that rate. Bytes that have left arrive after the delay. A segment that is lost is sent
again by TCP: it arrives later, and so does all that follows on its connection.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.support.ports import free_port

TO_TARGET: Final = 0
"""The direction of bytes to the target, in ``carried``; the other one is ``FROM_TARGET``."""
FROM_TARGET: Final = 1
READ_BYTES_MAX: Final = 65_536
SEGMENT_BYTES_MAX: Final = 1_460
"""What is sent at a time if the rate is limited, or segments are lost."""
ON_THE_WAY_MAX: Final = 4_096
"""Segments of a connection that have left and have not arrived."""
SENT_AGAIN_S: Final = 0.2
"""After how long TCP sends a lost segment again: its least time-out."""


@dataclass
class Relay:
    """Forwards bytes to a port; while it is cut, connections are closed and refused."""

    target: int
    delay_s: float = 0.0
    """Delay of bytes in each direction."""
    bytes_per_s_max: float = 0.0
    """In each direction, of all connections together; 0: without a limit."""
    lost: float = 0.0
    """Share of segments that are lost, and sent again."""
    port: int = field(default_factory=free_port)
    is_cut: bool = False
    writers: set[asyncio.StreamWriter] = field(default_factory=set)
    carried: list[int] = field(default_factory=lambda: [0, 0])
    """Bytes that have left, by direction; of TCP's payload, without headers."""
    segments: list[int] = field(default_factory=lambda: [0, 0])
    """In how many reads they came, by direction."""
    _free_at: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """When the line has sent what it was given, by direction."""
    _random: Random = field(default_factory=lambda: Random(7))

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_cut:
            writer.close()
            return
        try:
            onward, target = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        self.writers |= {writer, target}
        await asyncio.gather(
            self._carry(reader, target, TO_TARGET), self._carry(onward, writer, FROM_TARGET)
        )
        self.writers -= {writer, target}

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: int
    ) -> None:
        on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(ON_THE_WAY_MAX)
        arriving = asyncio.create_task(_arrive(on_the_way, writer))
        try:
            while data := await reader.read(self._read_bytes_max):
                self.carried[way] += len(data)
                self.segments[way] += 1
                left_at = max(self._free_at[way], time.monotonic())
                if self.bytes_per_s_max:
                    left_at += len(data) / self.bytes_per_s_max
                    self._free_at[way] = left_at
                    await asyncio.sleep(left_at - time.monotonic())
                arrives_at = left_at + self.delay_s
                if self.lost and self._random.random() < self.lost:
                    arrives_at += SENT_AGAIN_S + self.delay_s
                await on_the_way.put((arrives_at, data))
            await on_the_way.put((0.0, b""))
            await arriving
        except (OSError, asyncio.CancelledError):
            pass  # the link is cut, or the test is over
        finally:
            arriving.cancel()
            writer.close()

    @property
    def _read_bytes_max(self) -> int:
        return SEGMENT_BYTES_MAX if self.bytes_per_s_max or self.lost else READ_BYTES_MAX

    def cut(self) -> None:
        self.is_cut = True
        for writer in self.writers:
            writer.transport.abort()

    def heal(self) -> None:
        self.is_cut = False


async def _arrive(
    on_the_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
) -> None:
    """Write what is on the way, each at its time, in order."""
    while True:
        arrives_at, data = await on_the_way.get()
        if not data:
            return
        if (wait_s := arrives_at - time.monotonic()) > 0:
            await asyncio.sleep(wait_s)
        writer.write(data)
        await writer.drain()
