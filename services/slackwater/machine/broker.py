"""The embedded broker: a real Apache Kafka, one KRaft node, as a child process from Maven's jars.

The guarantees depend on the behaviour of a real broker when it is killed, when a transaction is
fenced, and when a consumer reads a commit marker; an in-memory fake would only test assumptions
about it. A broker in a container would make a container engine necessary for the first run.

The data directory holds what survives a restart: the logs, the ports (so that the address for
clients stays the same) and the broker's own log. The Java process inherits an open, locked file and
keeps it open. The directory is therefore locked exactly while a broker runs on it, however that
broker was started or ended, and no lock can be stale.
"""

import base64
import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pydantic import TypeAdapter, ValidationError

from slackwater.codec.paths import class_archive, class_sharing
from slackwater.machine.broker_properties import (
    HOST,
    Ports,
    broker_properties,
    closed_listeners,
    open_listeners,
)
from slackwater.machine.broker_security import BrokerSecurity
from slackwater.machine.paths import broker_jars, home, java_executable
from slackwater.machine.process import spawn
from slackwater.model.errors import EnvironmentProblem
from slackwater.runtime.logs.cluster import Cluster, Where, confluent_client
from slackwater.runtime.logs.refusals import Refusals
from slackwater.runtime.security.private import (
    FILE_MODE,
    UMASK,
    append_to,
    make_private,
    write_atomically,
)

ROOM_BYTES_MIN = 32 * 1024**2
"""Free space without which the broker is not started."""
# A start takes two seconds. After kill -9 the old registration must first expire (3 s), and a busy
# machine may take much longer.
START_S_MAX = 180.0
STOP_S_MAX = 15.0
# A broker whose parent was killed is killed at once, but its threads take a moment to end.
LOCK_S_MAX = 2.0
PORT_ATTEMPTS_MAX = 3
FEATURES = "bootstrap.checkpoint"
"""The file of a formatted directory that lists the features of its Kafka version."""


class EmbeddedBroker:
    """One real Kafka broker on loopback, bound to a data directory.

    ``start`` returns when the broker responds; ``stop`` ends it cleanly, ``kill`` as a crash would.
    Another ``start`` may follow, on the same port.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int | None = None,
        heap_mib_max: int = 512,
        archive_to: Path | None = None,
        security: BrokerSecurity | None = None,
        client_config: Path | None = None,
        runs_long: bool = False,
    ) -> None:
        """Configure a broker; without ``security`` it accepts every client on loopback.

        With ``archive_to`` it writes its loaded classes to that file when it ends.
        ``client_config`` is the file with the clients' credentials. ``runs_long`` enables the
        optimising compiler.
        """
        assert heap_mib_max >= 128, "the broker does not start in less"
        assert port is None or 0 < port < 65536
        self.data_dir = data_dir.resolve()
        self._wanted_port = port
        self._heap_mib_max = heap_mib_max
        self._archive_to = archive_to
        self._security = security
        self._client_config = client_config
        self._runs_long = runs_long
        self._process: subprocess.Popen[bytes] | None = None
        self._is_given_up = False
        self._ports: Ports | None = None

    @property
    def bootstrap(self) -> str:
        """Address for clients; available once the broker has been started."""
        assert self._ports is not None, "not started yet"
        return f"{HOST}:{self._ports.clients}"

    @property
    def inside(self) -> str:
        """Address of the listener for the broker itself; available once it has been started."""
        assert self._ports is not None, "not started yet"
        return f"{HOST}:{self._ports.inside}"

    @property
    def known_bootstrap(self) -> str | None:
        """The address for clients, if known before the first start of the broker.

        The port is given or stored from an earlier run; ``start`` uses no other.
        """
        port = self._wanted_port or self._kept_ports().get("broker")
        return None if port is None else f"{HOST}:{port}"

    @property
    def cluster(self) -> Cluster:
        """The address with the credentials of a client."""
        if self._security is None:
            return Cluster(self.bootstrap)
        return self._security.cluster(self.bootstrap, self._client_config)

    @property
    def pid(self) -> int:
        """The pid of the Java process, for drills that kill or pause it from outside."""
        assert self._process is not None, "not running"
        return self._process.pid

    @property
    def log_path(self) -> Path:
        """The broker's own log."""
        return self.data_dir / "broker.log"

    def is_running(self) -> bool:
        """Whether the process lives (it may still be starting, or be paused)."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start the broker and wait until it answers."""
        assert not self.is_running(), "already running"
        # The jars are in a fixed order: a class archive is valid for exactly one class path.
        java, class_path = java_executable(), ":".join(map(str, broker_jars()))
        try:
            make_private(self.data_dir)
            self._check_room()
            lock = _locked(self.data_dir)
            try:
                self._start_locked([java, *self._flags(), "-cp", class_path], lock)
            finally:
                os.close(lock)  # from here on the broker holds its own copy
        except OSError as error:
            raise EnvironmentProblem(
                f"the data directory {self.data_dir} cannot be used: {error.strerror}"
            ) from error
        return self

    def stop(self) -> None:
        """End the broker cleanly; kill it if it does not end in time."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.send_signal(signal.SIGCONT)  # a paused process does not handle SIGTERM
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S_MAX)
        self.kill()

    def give_up(self) -> None:
        """Abort a ``start`` that waits for the broker's response, permanently; thread-safe."""
        self._is_given_up = True

    def kill(self) -> None:
        """End the broker as a crash would (SIGKILL)."""
        if self._process is None:
            return
        self._process.kill()  # does nothing to a process that has ended already
        self._process.wait()
        self._process = None

    def __enter__(self) -> Self:
        """Start the broker, unless it runs already."""
        return self if self.is_running() else self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the broker."""
        self.stop()

    def _flags(self) -> list[str]:
        config = home() / "services/slackwater/machine/broker-pom/log4j2.xml"
        return [
            f"-Xmx{self._heap_mib_max}m",
            "-XX:+UseSerialGC",  # two cores, small heap: fewer threads, quicker start
            # At 400 readings/s the optimising compiler saves a third of the CPU from the second
            # minute on (bench.idle). In a short run it only costs.
            *(() if self._runs_long else ("-XX:TieredStopAtLevel=1",)),
            "-XX:+ExitOnOutOfMemoryError",
            *class_sharing("broker", self._archive_to),
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={config}",
            f"-Dslackwater.broker.log={self.log_path}",
        ]

    def _start_locked(self, java: list[str], lock: int) -> None:
        for attempt in range(1, PORT_ATTEMPTS_MAX + 1):
            chosen_freely = self._choose_ports()
            self._write_properties()
            self._format_once(java)
            log_offset = self.log_path.stat().st_size if self.log_path.exists() else 0
            self._launch(java, lock)
            try:
                self._wait_until_it_answers(log_offset)
                return
            except _PortTaken:
                # Another process took a port between the check and the broker's bind. A port that
                # clients may already use is kept: the next check then raises.
                self.kill()
                if attempt == PORT_ATTEMPTS_MAX:
                    raise
                if chosen_freely:
                    self._ports_path.unlink()
            except BaseException:
                self.kill()
                raise

    def _check_room(self) -> None:
        """Raise ``EnvironmentProblem`` on a full disk: Kafka starts there, and never responds."""
        free = shutil.disk_usage(self.data_dir).free
        if free < ROOM_BYTES_MIN:
            raise EnvironmentProblem(
                f"{free // 1024**2} MiB are free for {self.data_dir}, and the broker needs at least"
                f" {ROOM_BYTES_MIN // 1024**2}: make room there, or choose another data directory"
            )

    def _launch(self, java: list[str], lock: int) -> None:
        with append_to(self.data_dir / "broker.out") as out:
            self._process = spawn(
                [*java, "kafka.Kafka", str(self._properties_path)], stdout=out, pass_fds=(lock,)
            )
        os.truncate(lock, 0)
        os.pwrite(lock, str(self._process.pid).encode(), 0)

    @property
    def _ports_path(self) -> Path:
        return self.data_dir / "ports.json"

    @property
    def _properties_path(self) -> Path:
        return self.data_dir / "server.properties"

    def _choose_ports(self) -> bool:
        """Take the stored ports, or free ones; returns whether the clients' port is new."""
        kept = self._kept_ports()
        port: int = self._wanted_port or kept.get("broker", 0)
        chosen_freely = not port
        if port and not _is_free(port):
            raise EnvironmentProblem(
                f"port {port} on {HOST} is in use by another process: end that one or choose"
                " another port"
            )
        others = (kept.get(name, 0) for name in ("controller", "inside"))
        self._ports = _free_ports(port, *(other if _is_free(other) else 0 for other in others))
        named = zip(("broker", "controller", "inside"), self._ports, strict=True)
        write_atomically(self._ports_path, json.dumps(dict(named)))
        return chosen_freely

    def _kept_ports(self) -> dict[str, int]:
        if not self._ports_path.exists():
            return {}
        try:
            return TypeAdapter(dict[str, int]).validate_json(self._ports_path.read_bytes())
        except ValidationError as error:
            raise EnvironmentProblem(
                f"{self._ports_path} is not a file of the broker's ports: remove it, and the broker"
                " chooses other ports"
            ) from error

    def _write_properties(self) -> None:
        assert self._ports is not None
        lines = [f"{name}={value}" for name, value in self._properties()]
        write_atomically(self._properties_path, "\n".join(lines) + "\n")

    def _format_once(self, java: list[str]) -> None:
        """Format the log directory, unless it has been formatted.

        Kafka's tool for it is a JVM of its own, which takes a third of the broker's start. It
        writes an identity and the same list of features each time: ``make setup`` keeps the list.

        A marker file is written after the format and before the first start. Logs without the
        marker are left over from an interrupted format and hold no data.
        """
        mark = self.data_dir / "formatted"
        if mark.exists():
            return
        logs = self.data_dir / "logs"
        shutil.rmtree(logs, ignore_errors=True)
        cluster_id = self._cluster_id()
        if features_file().exists():
            _write_formatted(logs, cluster_id, dict(self._properties())["node.id"])
        else:
            self._run_format(java, cluster_id)
        write_atomically(mark, cluster_id + "\n")

    def _run_format(self, java: list[str], cluster_id: str) -> None:
        done = subprocess.run(
            [
                *(*java, "kafka.tools.StorageTool", "format"),
                *("--cluster-id", cluster_id, "--config", str(self._properties_path)),
            ],
            capture_output=True,
            text=True,
            check=False,
            umask=UMASK,
        )
        if done.returncode != 0:
            emitted = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
            raise EnvironmentProblem(
                f"the broker's data directory {self.data_dir} cannot be prepared: {emitted[-1]}"
            )

    def _cluster_id(self) -> str:
        return _kafka_uuid()

    def _wait_until_it_answers(self, log_offset: int) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_S_MAX
        while time.monotonic() < deadline:
            if self._is_given_up:
                raise EnvironmentProblem("the broker was stopped while it started")
            if _accepts(self.bootstrap) and self._accepts_clients():
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(0.05)
                raise self._explain_end(code, log_offset)
        raise EnvironmentProblem(
            f"the broker has not answered on {self.bootstrap} within {START_S_MAX:.0f} s:"
            f" see {self.log_path}"
        )

    def _accepts_clients(self) -> bool:
        if self._security is not None:
            inside = self._security.inside(self.inside)
            if not answers(inside, timeout_s=2.0):
                return False
            self._security.write_users(inside)
        return answers(self.cluster, timeout_s=2.0)

    def _properties(self) -> list[tuple[str, object]]:
        assert self._ports is not None
        common = broker_properties(self.data_dir, self._ports)
        if self._security is None:
            return [*common, *open_listeners(self._ports)]
        self._security.prepare()
        return [*common, *closed_listeners(self._ports), *self._security.properties()]

    def _explain_end(self, code: int, log_offset: int) -> EnvironmentProblem:
        written = ""
        if self.log_path.exists():
            with self.log_path.open(errors="replace") as log:
                log.seek(min(log_offset, self.log_path.stat().st_size))
                written = log.read()
        if "Address already in use" in written:
            return _PortTaken(
                f"the broker's port on {HOST} was taken by another process while it started"
            )
        emitted = [line for line in written.splitlines() if " ERROR " in line or " FATAL " in line]
        reason = emitted[0].split(" ", 2)[-1] if emitted else f"see {self.data_dir / 'broker.out'}"
        return EnvironmentProblem(
            f"the broker ended with code {code} while it started: {reason} (log: {self.log_path})"
        )


class _PortTaken(EnvironmentProblem):
    """The port is taken by another process; a freely chosen port is replaced."""


def features_file() -> Path:
    """Return the file in which ``make setup`` keeps the features of a formatted directory."""
    return class_archive("broker").with_name(FEATURES)


def _kafka_uuid() -> str:
    """Return a random id as Kafka writes it; it does not begin with a hyphen."""
    return base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:])[:22].decode()


def _write_formatted(logs: Path, cluster_id: str, node_id: object) -> None:
    """Write what ``StorageTool format`` of this version writes into an empty directory."""
    logs.mkdir(mode=0o700)
    identity = {
        "version": 1,
        "cluster.id": cluster_id,
        "node.id": node_id,
        "directory.id": _kafka_uuid(),
    }
    with append_to(logs / FEATURES) as features:
        features.write(features_file().read_bytes())
    text = "".join(f"{name}={value}\n" for name, value in identity.items())
    write_atomically(logs / "meta.properties", text)


def answers(where: Where, timeout_s: float) -> bool:
    """Whether a broker returns its metadata within the time."""
    return why_no_answer(where, timeout_s) is None


def why_no_answer(where: Where, timeout_s: float) -> str | None:
    """Why no broker returns its metadata within the time; None if one does."""
    refusals = Refusals()
    client = AdminClient(
        confluent_client(where)
        | {
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,  # a refused connection is expected here
        }
        | refusals.config
    )
    try:
        return None if client.list_topics(timeout=timeout_s).brokers else "no broker is listed"
    except KafkaException as error:
        client.poll(0)  # delivers pending error callbacks
        return refusals.why(str(error.args[0].str()))


def _locked(data_dir: Path) -> int:
    """Open and lock the directory's lock file; the lock belongs to the open descriptor."""
    lock = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT, FILE_MODE)
    deadline = time.monotonic() + LOCK_S_MAX
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)  # flock has no timeout
    holder = os.pread(lock, 20, 0).decode(errors="replace") or "unknown"
    os.close(lock)
    raise EnvironmentProblem(
        f"another broker (process {holder}) runs on {data_dir}: stop that one or choose another"
        " data directory"
    )


def _free_ports(*ports: int) -> Ports:
    """Replace zeros by free ports; all sockets are open at once, so the ports are distinct."""
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        for port in ports:
            chosen = port
            while not chosen or chosen in found:
                probe = stack.enter_context(socket.socket())
                probe.bind((HOST, 0))
                chosen = probe.getsockname()[1]
            found.append(chosen)
    return Ports(*found)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As the broker itself does: connections in TIME_WAIT do not make a port taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _accepts(bootstrap: str) -> bool:
    host, port = bootstrap.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), timeout=0.5):
            return True
    except OSError:
        return False
