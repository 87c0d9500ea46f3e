"""A Spark session in a JVM whose lifetime is bound to this process.

PySpark's launcher runs two shell scripts and a JVM that only prints the command line of a second
JVM. This module starts the second JVM directly, which saves half a second and makes the JVM a child
process. The kernel ends the JVM with this process (``PR_SET_PDEATHSIG``): a killed aggregator must
not leave a JVM that continues to write, although its duplicates would be harmless. When the JVM
ends, this process ends, and the supervisor restarts it. A stop kills the JVM at once. PySpark
connects to the running JVM, its *gateway*, through two environment variables of PySpark itself.

On a cluster, any program that reaches the port of the driver or of a worker can run code there.
Spark's protection is a secret shared by all processes of the cluster (``secret_file``), which
authenticates them and encrypts their messages. The secret is passed to the JVM through the gateway
and never on a command line; a worker passes it to its executors in their environment.

The settings below reduce the aggregator's latency and background work on one machine; comments give
the reasons where they are not obvious. ``--master`` may name a cluster; the connector jars are then
sent to it with the application.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from slackwater.codec.paths import class_sharing
from slackwater.model.errors import EnvironmentProblem
from slackwater.model.limits import RECORD_BYTES_MAX
from slackwater_spark.class_path import class_path, connector_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_MASTER = "local[4096]"
"""A real-time task never ends, and each partition has one. Unused slots cost nothing, since
threads start with their tasks."""

_START_SECONDS_MAX = 60

# Options of the driver, and of executors with identical files.
_JVM = (
    "-Xss4m",  # long plans are compiled by deep recursion
    "-XX:+UseSerialGC",  # two cores, small heap: fewer threads, quicker start
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",  # a JVM in an undefined state is worse than a restart
    "-XX:+IgnoreUnrecognizedVMOptions",
    # The start runs a hundred thousand methods a few hundred times each; the data path runs a
    # hundred methods permanently. By default the optimising compiler also compiles the methods of
    # the start, which on two cores costs as much as the rest of the start. A method of the data
    # path reaches these thresholds within a second.
    "-XX:Tier4InvocationThreshold=200000",
    "-XX:Tier4MinInvocationThreshold=100000",
    "-XX:Tier4CompileThreshold=400000",
    "-XX:Tier4BackEdgeThreshold=2000000",
)

# Only the optimising compiler needs code with profiling, which takes a quarter of the CPU of a
# start: 6.6 s without this option, 4.7 s with it. At a million readings per second the aggregator
# uses 0.54 of a core with this option and 0.27 without it.
_SHORT_RUN = ("-XX:TieredStopAtLevel=1",)

# Options that Spark's launcher passes to a Java 17 JVM (JavaModuleOptions): without them
# reflection into these packages is denied.
_OPENED_PACKAGES = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "jdk.internal.ref",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)

# A damaged record may declare arrays and strings of any length. Avro allocates the declared
# length before reading, and an OutOfMemoryError, unlike an exception, ends the application. No
# record is larger than RECORD_BYTES_MAX, so no valid record exceeds these limits.
_AVRO = (
    f"-Dorg.apache.avro.limits.collectionItems.maxLength={RECORD_BYTES_MAX // 8}",
    f"-Dorg.apache.avro.limits.string.maxLength={1024 * 1024}",
    f"-Dorg.apache.avro.limits.bytes.maxLength={RECORD_BYTES_MAX}",
)

CLUSTER_SECURITY: Final = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.authEngineVersion": "2",
    # The other cipher, GCM, handles one message per connection in Spark 4.1.1 (SPARK-56227).
    "spark.network.crypto.cipher": "AES/CTR/NoPadding",
}
"""Settings besides the secret, equal on master and workers (``compose/images/spark/spark``)."""
SECRET_CHARS_MIN: Final = 32

_LOG = f"-Dlog4j2.configurationFile={Path(__file__).parent / 'log4j2.properties'}"


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Parameters of the Spark session. ``work_dir`` holds scratch files, deleted at the start.

    ``archive_to``: file for the archive of classes loaded in this run, written at its end.
    ``workers_alike``: the workers of the cluster ``master`` have the same files at the same paths
    (the same image), so executors load classes from there and start as fast as the driver.
    """

    app_name: str
    work_dir: Path
    master: str = LOCAL_MASTER
    heap_mib: int = 1024
    archive_to: Path | None = None
    workers_alike: bool = False
    secret_file: Path | None = None
    """File of the secret that the cluster's processes share; not needed with a local master."""
    conf: Mapping[str, str] = field(default_factory=dict)
    runs_long: bool = True
    """Whether to use the optimising compiler: its cost is too high for a rehearsal or a demo."""

    @property
    def local(self) -> bool:
        """Whether tasks run in the driver's JVM."""
        return self.master.startswith("local")


def find_java() -> str:
    """Return the Java executable: that of JAVA_HOME, else the one on the path."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
    if java is None:
        raise EnvironmentProblem("Java is missing: install Java 17, or set JAVA_HOME")
    return java


class SparkApplication:
    """A running JVM with its session. Use as a context manager, or call ``stop``."""

    def __init__(self, session: SparkSession, process: subprocess.Popen[bytes]) -> None:
        self.session = session
        self.process = process

    def stop(self) -> None:
        """Kill the JVM at once: it has no state to save, and an orderly shutdown takes time.

        Records that its producers had in flight are sent again by the next JVM.
        """
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        _forget_session()

    def __enter__(self) -> SparkApplication:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


def start_spark(settings: SessionSettings, log: IO[bytes] | None = None) -> SparkApplication:
    """Start the JVM and create the session; to be called in the main thread.

    The JVM ends with the thread that starts it.

    ``log`` receives the JVM's output; by default it goes to this process's output.
    """
    shutil.rmtree(settings.work_dir, ignore_errors=True)
    settings.work_dir.mkdir(parents=True)
    process, port, secret = _start_jvm(settings, log)
    os.environ.update(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret)
    try:
        session = _make_session(settings)
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        # Child processes started later must not connect to this JVM.
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    return SparkApplication(session, process)


def _start_jvm(
    settings: SessionSettings, log: IO[bytes] | None
) -> tuple[subprocess.Popen[bytes], int, str]:
    command = _java_command(settings)
    with tempfile.TemporaryDirectory(dir=settings.work_dir) as folder:
        reported = Path(folder) / "gateway"
        environment = os.environ | {
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(reported),
            "SPARK_CONNECT_MODE": "0",
            "SPARK_LOCAL_IP": _address(settings),
        }
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # the gateway ends at end of file
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,  # Ctrl-C must not reach the JVM
        )
        _import_pyspark()
        port, secret = _read_gateway(process, reported)
    return process, port, secret


def _read_gateway(process: subprocess.Popen[bytes], reported: Path) -> tuple[int, str]:
    """Return port and secret, from the file that the gateway renames into place when ready."""
    for _ in range(_START_SECONDS_MAX * 50):
        if reported.exists():
            raw = reported.read_bytes()
            port, length = struct.unpack_from(">ii", raw)
            return port, raw[8 : 8 + length].decode()
        try:
            code = process.wait(0.02)
        except subprocess.TimeoutExpired:
            continue
        raise EnvironmentProblem(f"Spark's JVM ended at once with code {code}; see its log")
    process.kill()
    raise EnvironmentProblem(f"Spark's JVM did not answer within {_START_SECONDS_MAX} s")


def _bound_to_parent() -> list[str]:
    """Return a prefix that binds the JVM to this process; without it, end of input ends the JVM."""
    setpriv = shutil.which("setpriv")
    return [] if setpriv is None else [setpriv, "--pdeathsig", "KILL", "--"]


def _java_command(settings: SessionSettings) -> list[str]:
    classes = class_path()
    command = [
        *_bound_to_parent(),
        find_java(),
        f"-Xmx{settings.heap_mib}m",
        *_JVM,
        *(() if settings.runs_long else _SHORT_RUN),
        *class_sharing("spark", settings.archive_to),
        "-Djdk.reflect.useDirectMethodHandle=false",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Djava.net.preferIPv4Stack=true",
        f"-Djava.io.tmpdir={settings.work_dir}",
        _LOG,
        *_AVRO,
        *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED_PACKAGES),
        "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
        "-cp",
        classes,
        "org.apache.spark.deploy.SparkSubmit",
        "--master",
        settings.master,
    ]
    if not settings.local:
        command += _for_executors(settings, classes)
    return [*command, "pyspark-shell"]


def _import_pyspark() -> None:
    """Import PySpark while the JVM starts, on the other core."""
    import pyspark.sql  # noqa: F401


def _for_executors(settings: SessionSettings, of_driver: str) -> list[str]:
    if settings.workers_alike:
        options = [*_JVM, *class_sharing("spark"), _LOG, *_AVRO]
        classes = ["--conf", f"spark.executor.extraClassPath={of_driver}"]
    else:
        options = [*_AVRO]
        classes = ["--jars", ",".join(map(str, connector_jars()))]
    return [*classes, "--conf", f"spark.executor.extraJavaOptions={' '.join(options)}"]


def _make_session(settings: SessionSettings) -> SparkSession:
    from pyspark.sql import SparkSession

    manager = "org.apache.spark.sql.execution.streaming.checkpointing"
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": _address(settings),
        "spark.driver.bindAddress": _address(settings),
        "spark.local.dir": str(settings.work_dir),
        "spark.sql.warehouse.dir": str(settings.work_dir / "warehouse"),
        # Hadoop's file system sets modes itself and ignores the umask.
        "spark.hadoop.fs.permissions.umask-mode": "077",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        # A value that does not fit becomes NULL, which the guard turns into VOID; an exception
        # would end the query.
        "spark.sql.ansi.enabled": "false",
        # The transforms depend on separate stages: if collapsed, a column used in a lambda would be
        # computed again for each key.
        "spark.sql.optimizer.excludedRules": (
            "org.apache.spark.sql.catalyst.optimizer.CollapseProject"
        ),
        # The default manager forks a chmod for each checkpoint file.
        "spark.sql.streaming.checkpointFileManagerClass": (
            f"{manager}.FileSystemBasedCheckpointFileManager"
        ),
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        "spark.sql.streaming.metricsEnabled": "false",
        # The count of running tasks shows that a query is running. By default a change less than
        # 100 ms after another is published with the next heartbeat, up to 10 s later.
        "spark.ui.liveUpdate.period": "0",
        "spark.sql.streaming.numRecentProgressUpdates": "2",
        "spark.sql.streaming.realTimeMode.minBatchDuration": "1s",
        "spark.sql.streaming.stopTimeout": "1s",
        # Each partition occupies a slot permanently, so fair scheduling has no effect.
        "spark.scheduler.mode": "FIFO",
        # By default a full collection runs every 30 minutes, needed or not, and its pause delays
        # answers.
        "spark.cleaner.periodicGC.interval": "24h",
        "spark.executor.heartbeatInterval": "10s",
        # By default there are as many threads as slots.
        "spark.rpc.netty.dispatcher.numThreads": "2",
    }
    builder = SparkSession.builder.appName(settings.app_name).master(settings.master)
    for name, value in (conf | _cluster_security(settings) | dict(settings.conf)).items():
        builder = builder.config(name, value)
    before = signal.getsignal(signal.SIGINT)
    session = builder.getOrCreate()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)  # PySpark sets a handler that calls the JVM
    return session


def _cluster_security(settings: SessionSettings) -> dict[str, str]:
    if settings.local or settings.secret_file is None:
        return {}
    try:
        secret = settings.secret_file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentProblem(
            f"the secret of the Spark cluster cannot be read from {settings.secret_file}: {error}"
        ) from error
    if len(secret) < SECRET_CHARS_MIN:
        raise EnvironmentProblem(
            f"{settings.secret_file} holds no secret of at least {SECRET_CHARS_MIN} characters:"
            f" openssl rand -base64 48 > {settings.secret_file}"
        )
    return CLUSTER_SECURITY | {"spark.authenticate.secret": secret}


def _address(settings: SessionSettings) -> str:
    """Return the driver's address: loopback, or one that a cluster's executors can reach."""
    return "127.0.0.1" if settings.local else socket.gethostbyname(socket.gethostname())


def _forget_session() -> None:
    """Allow another session: PySpark keeps the dead one in class attributes."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = SparkContext._active_spark_context
    if context is not None and SparkContext._gateway is not None:
        SparkContext._gateway.shutdown()
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkSession._instantiatedSession = None
