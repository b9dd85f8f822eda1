"""Peers with other protocols, run from Debian's packages: RabbitMQ, NATS, Redis, gearmand.

Each has the settings whose durability promise is nearest to Beanpole's, and the results name the
promise that it then makes. Only the run's folder is read or written: no configuration, cookie or
name server of the machine is used.
"""

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from bench.processes import BenchError, child, wait_for, wait_for_answer
from bench.servers import BASE_PORT, DISK, MAJORITY, MAJORITY_MEMORY, MEMORY, Running, System

# Three Erlang virtual machines on two cores are slow to start.
RABBITMQ_TIMEOUT_S: Final = 120.0
START_TIMEOUT_S: Final = 30.0
NODES: Final = (1, 2, 3)
RABBITMQ_BIN: Final = Path("/usr/lib/rabbitmq/bin")
RABBITMQ_CONFIGURATION: Final = """\
loopback_users = none
disk_free_limit.absolute = 1GB
vm_memory_high_watermark.relative = 0.3
log.file.level = warning
"""
# One scheduler per node: three nodes with one scheduler per core would compete for the cores. No
# busy waiting, which would be counted as work.
ERLANG: Final = (
    "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}"
)
NATS_CONFIGURATION: Final = """\
server_name: n{node}
listen: 127.0.0.1:{client}
http: 127.0.0.1:{http}
jetstream {{ store_dir: "{data}", max_memory_store: 256MB, max_file_store: 4GB }}
cluster {{ name: bench, listen: 127.0.0.1:{route}, routes: [{routes}] }}
"""


@contextmanager
def redis(folder: Path) -> Iterator[Running]:
    """Run one Redis that syncs its append-only file before it answers."""
    log = folder / "output.log"
    (folder / "data").mkdir()
    command = ["redis-server", "--bind", "127.0.0.1", "--port", str(BASE_PORT)]
    command += ["--dir", str(folder / "data"), "--save", "", "--appendonly", "yes"]
    command += ["--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"]
    with child(command, log) as process:
        wait_for_answer(process, f"127.0.0.1:{BASE_PORT}", log, START_TIMEOUT_S)
        yield Running([f"127.0.0.1:{BASE_PORT}"], [process.pid])


@contextmanager
def gearmand(folder: Path, durable: bool) -> Iterator[Running]:
    """Run one gearmand, whose background jobs are in SQLite or in memory."""
    log = folder / "output.log"
    command = ["gearmand", "-L", "127.0.0.1", "-p", str(BASE_PORT), "-t", "1"]
    command += ["-l", str(folder / "gearmand.log"), "-P", str(folder / "gearmand.pid")]
    if durable:
        command += ["-q", "libsqlite3", f"--libsqlite3-db={folder / 'jobs.sqlite'}"]
        command += ["--libsqlite3-table=gearman_queue"]
    if os.geteuid() == 0:
        # By default it switches to the user `gearman`, which may not write to the folder.
        command += ["-u", "root"]
    with child(command, log) as process:
        wait_for_answer(process, f"127.0.0.1:{BASE_PORT}", log, START_TIMEOUT_S)
        yield Running([f"127.0.0.1:{BASE_PORT}"], [process.pid])


@contextmanager
def nats(folder: Path) -> Iterator[Running]:
    """Run three NATS servers with one stream of three replicas, which do not sync per message."""
    routes = ", ".join(f"nats://127.0.0.1:{BASE_PORT + 20 + node}" for node in NODES)
    environment = dict(os.environ, GOMAXPROCS="1")
    with ExitStack() as running:
        pids = []
        for node in NODES:
            ports = {"client": BASE_PORT + node, "http": BASE_PORT + 10 + node}
            text = NATS_CONFIGURATION.format(
                node=node,
                data=folder / f"n{node}",
                route=BASE_PORT + 20 + node,
                routes=routes,
                **ports,
            )
            configuration, log = folder / f"n{node}.conf", folder / f"n{node}.log"
            configuration.write_text(text)
            command = ["nats-server", "-c", str(configuration)]
            process = running.enter_context(child(command, log, environment))
            wait_for_answer(process, f"127.0.0.1:{ports['client']}", log, START_TIMEOUT_S)
            pids.append(process.pid)
        wait_for(_nats_is_healthy, START_TIMEOUT_S, "NATS says that JetStream is healthy")
        _make_stream(f"127.0.0.1:{BASE_PORT + 1}")
        yield Running([f"127.0.0.1:{BASE_PORT + node}" for node in NODES], pids)


def _nats_is_healthy() -> bool:
    for node in NODES:
        try:
            address = f"http://127.0.0.1:{BASE_PORT + 10 + node}/healthz"
            with urllib.request.urlopen(address, timeout=2) as reply:
                if reply.status != 200:
                    return False
        except OSError:
            return False
    return True


def _make_stream(address: str) -> None:
    stream = {
        "name": "load",
        "subjects": ["load"],
        "retention": "workqueue",
        "storage": "file",
        "num_replicas": len(NODES),
        "discard": "new",
        "max_consumers": -1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
    }
    consumer = {
        "durable_name": "worker",
        "ack_policy": "explicit",
        "deliver_policy": "all",
        "ack_wait": 120_000_000_000,
        # Both are at least the number of workers in any run.
        "max_ack_pending": 1_000_000,
        "max_waiting": 100_000,
    }
    _ask_nats(address, "$JS.API.STREAM.CREATE.load", stream)
    request = {"stream_name": "load", "config": consumer}
    _ask_nats(address, "$JS.API.CONSUMER.DURABLE.CREATE.load.worker", request)


def _ask_nats(address: str, subject: str, request: dict[str, Any]) -> None:
    """Repeat a request until it succeeds: a new cluster refuses while it elects its leaders."""
    body = json.dumps(request)
    host, _, port = address.rpartition(":")
    reply = ""

    def granted() -> bool:
        nonlocal reply
        with socket.create_connection((host, int(port)), 5) as connection:
            lines = connection.makefile("rwb")
            lines.readline()
            lines.write(b'CONNECT {"verbose":false,"headers":false}\r\nSUB made 1\r\n')
            lines.write(f"PUB {subject} made {len(body)}\r\n{body}\r\n".encode())
            lines.flush()
            try:
                while not (line := lines.readline()).startswith(b"MSG "):
                    if not line or line.startswith(b"-ERR"):
                        raise BenchError(f"NATS: {line.decode().strip() or 'connection closed'}")
                reply = lines.readline().decode()
            except TimeoutError:
                return False
        return '"error"' not in reply and '"config"' in reply

    until = time.monotonic() + START_TIMEOUT_S
    while not granted():
        if time.monotonic() > until:
            raise BenchError(f"NATS refuses {subject}: {reply.strip() or 'no reply'}")


def _rabbitmq_environment(folder: Path, node: int) -> dict[str, str]:
    own = folder / f"r{node}"
    return {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        # Holds the cookie that the nodes share.
        "HOME": str(folder),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(BASE_PORT),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_NODENAME": f"r{node}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(BASE_PORT + node),
        "RABBITMQ_DIST_PORT": str(BASE_PORT + 10 + node),
        "RABBITMQ_MNESIA_BASE": str(own),
        "RABBITMQ_LOG_BASE": str(own),
        "RABBITMQ_PID_FILE": str(own / "pid"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ERLANG,
        # Makes the script exec the server instead of remaining as its parent.
        "RUNNING_UNDER_SYSTEMD": "true",
    }


@contextmanager
def rabbitmq(folder: Path) -> Iterator[Running]:
    """Run three RabbitMQ nodes; the generator declares a quorum queue of three members."""
    (folder / "rabbitmq.conf").write_text(RABBITMQ_CONFIGURATION)
    (folder / "plugins").write_text("[].\n")
    with ExitStack() as running:
        epmd = ["epmd", "-address", "127.0.0.1", "-port", str(BASE_PORT)]
        names = running.enter_context(child(epmd, folder / "epmd.log"))
        wait_for_answer(names, f"127.0.0.1:{BASE_PORT}", folder / "epmd.log", START_TIMEOUT_S)
        started = []
        for node in NODES:
            (folder / f"r{node}").mkdir()
            environment, log = _rabbitmq_environment(folder, node), folder / f"r{node}.log"
            command = [str(RABBITMQ_BIN / "rabbitmq-server")]
            process = running.enter_context(child(command, log, environment))
            started.append((process, f"127.0.0.1:{BASE_PORT + node}", log))
            if node == 1:
                # The first node writes the cookie that the others read.
                wait_for_answer(*started[0], RABBITMQ_TIMEOUT_S)
        for server in started:
            wait_for_answer(*server, RABBITMQ_TIMEOUT_S)
        for node in NODES:
            _rabbitmqctl(folder, node, "await_startup")
        for node in NODES[1:]:
            _rabbitmqctl(folder, node, "stop_app")
            _rabbitmqctl(folder, node, "join_cluster", "r1@localhost")
            _rabbitmqctl(folder, node, "start_app")
        addresses = [address for _, address, _ in started]
        yield Running(addresses, [process.pid for process, _, _ in started])


def _rabbitmqctl(folder: Path, node: int, *words: str) -> None:
    environment = _rabbitmq_environment(folder, node)
    command = [str(RABBITMQ_BIN / "rabbitmqctl"), "-n", f"r{node}@localhost", *words]
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RABBITMQ_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise BenchError(f"rabbitmqctl {' '.join(words)}: {done.stdout}{done.stderr}")


GEARMAND: Final = System(
    "gearmand",
    MEMORY,
    lambda folder: gearmand(folder, durable=False),
    "gearman",
    "gearman-job-server",
    ("gearmand",),
)
GEARMAND_DURABLE: Final = System(
    "gearmand with SQLite",
    DISK,
    lambda folder: gearmand(folder, durable=True),
    "gearman",
    "gearman-job-server",
    ("gearmand",),
)
# The same server, called with the script of a client library.
QLESS_ON_REDIS: Final = System(
    "qless on Redis appendfsync always", DISK, redis, "qless", "redis-server", ("redis-server",)
)
PEERS: Final = (
    System(
        "RabbitMQ quorum, 3 nodes",
        MAJORITY,
        rabbitmq,
        "amqp",
        "rabbitmq-server",
        ("rabbitmq-server",),
    ),
    System(
        "NATS JetStream R3, 3 nodes", MAJORITY_MEMORY, nats, "nats", "nats-server", ("nats-server",)
    ),
    System("Redis appendfsync always", DISK, redis, "redis", "redis-server", ("redis-server",)),
    GEARMAND_DURABLE,
    GEARMAND,
)
