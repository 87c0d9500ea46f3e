"""librdkafka's own mock cluster: a broker that answers chosen requests with chosen errors."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_char_p, c_int, c_int16, c_int32, c_size_t, c_void_p
from typing import Any

from slackwater.runtime.logs.librdkafka import library

PRODUCE = 0
NOT_LEADER = 6
_PRODUCER = 0
_BROKER = 1


class MockCluster:
    """One broker; topics are created by requests for them."""

    def __init__(self, handle: int) -> None:
        self._library: Any = library()
        self._library.rd_kafka_mock_cluster_new.restype = c_void_p
        self._library.rd_kafka_mock_cluster_new.argtypes = (c_void_p, c_int)
        self._library.rd_kafka_mock_cluster_bootstraps.restype = c_char_p
        self._library.rd_kafka_mock_cluster_bootstraps.argtypes = (c_void_p,)
        self._library.rd_kafka_mock_cluster_destroy.restype = None
        self._library.rd_kafka_mock_cluster_destroy.argtypes = (c_void_p,)
        self._cluster = self._library.rd_kafka_mock_cluster_new(handle, 1)
        assert self._cluster is not None
        self.bootstrap: str = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic before it is requested; otherwise it has four partitions."""
        cluster, name = c_void_p(self._cluster), topic.encode()
        code = self._library.rd_kafka_mock_topic_create(cluster, name, c_int(partitions), c_int(1))
        assert code == 0, code

    def refuse(self, api: int, error: int, after_ms: int = 0) -> None:
        """Answer the next request of this kind with an error code, after a delay.

        A client that may have several requests in flight sends them in the meantime.
        """
        code = self._library.rd_kafka_mock_broker_push_request_error_rtts(
            c_void_p(self._cluster),
            c_int32(_BROKER),
            c_int16(api),
            c_size_t(1),
            c_int(error),
            c_int(after_ms),
        )
        assert code == 0, code

    def close(self) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)


@contextmanager
def mock_cluster() -> Iterator[MockCluster]:
    """Run a cluster until the end of the block."""
    lib = library()
    error = ctypes.create_string_buffer(512)
    handle = lib.rd_kafka_new(_PRODUCER, lib.rd_kafka_conf_new(), error, len(error))
    assert handle is not None, error.value
    cluster = MockCluster(handle)
    try:
        yield cluster
    finally:
        cluster.close()
        lib.rd_kafka_destroy(handle)
