"""The daemon: build the objects of a node from its configuration and run the loop. Wiring only."""

import argparse
import asyncio
import atexit
import contextlib
import ctypes
import difflib
import gc
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, NoReturn

import uvloop

# First, because gRPC reads its settings when it is imported.
import beanpoled.quiet  # noqa: F401
from beanpole.client.printing import Parser, print_lines
from beanpole.errors import BeanpoleError, ConfigurationError, WrongIdentity
from beanpole.replication.consensus import ReplicaConfig
from beanpole.replication.pysyncobj.backend import PySyncObjReplica
from beanpole.storage.ballast import make_room_to_start
from beanpole.storage.dump import describe
from beanpoled import checking, collecting, descriptors, first_process, program, starting
from beanpoled.audit.log import AuditLog
from beanpoled.config import memory, memory_budget, reach
from beanpoled.config import node as configuration
from beanpoled.config.node import NodeConfig
from beanpoled.disk.disks import Disks
from beanpoled.disk.identity import DISK_ID_BYTES, REJOINING
from beanpoled.frontends.table import FRONTENDS, Table
from beanpoled.host.aio import AioHost
from beanpoled.host.log import LogLines, StandardError
from beanpoled.host.seam import ERROR, WARNING
from beanpoled.http.server import HttpServer
from beanpoled.node_view import LocalNodeView
from beanpoled.reloading import Reading, Reloader
from beanpoled.rpc.admin import RpcServer, Service
from beanpoled.rpc.auditing import Auditor
from beanpoled.rpc.backup import BackupServicer
from beanpoled.rpc.caller import CALLER
from beanpoled.rpc.callers import Callers
from beanpoled.rpc.door import Door
from beanpoled.rpc.events import EventsServicer
from beanpoled.rpc.guarding import Guard
from beanpoled.rpc.jobs import JobAdminServicer
from beanpoled.rpc.live import LiveServicer
from beanpoled.rpc.node_admin import NodeAdminServicer
from beanpoled.rpc.policies import PoliciesServicer
from beanpoled.rpc.queue import QueueServicer
from beanpoled.rpc.users import UsersServicer
from beanpoled.supervision import Supervision
from beanpoled.trust import secret_file
from beanpoled.turn.node import Node

# Constants of malloc.h, and their values here: blocks from this size on are mapped separately, and
# the few threads beside the loop share one heap. msgpack allocates 256 KiB for each message, which
# must not cost a system call.
M_MMAP_THRESHOLD: Final = -3
M_ARENA_MAX: Final = -8
MMAP_THRESHOLD_BYTES: Final = 1024 * 1024
ARENAS_MAX: Final = 2
# EX_CONFIG of sysexits.h: after a restart with the same configuration, a node would only end again.
EXIT_CONFIGURATION: Final = 78
# Keys of what a loop reports of a connection, which a stranger may have broken: of its transport,
# or of a future that a library (grpc.aio, asyncio's streams) has abandoned with it. A callback that
# fails has none of them, but a `handle`: its error may be of a disk, such as ETIMEDOUT of NFS.
_OF_SOCKETS: Final = frozenset({"transport", "protocol", "socket", "future", "task"})
EXIT_WORDS: Final = (
    f"Exit status: 0 stopped as told; {EXIT_CONFIGURATION} the configuration is wrong, or the disk "
    "is another node's: do not start it again; any other: it failed, and its last line says why."
)


def parser() -> "_Parser":
    """Return the parser of all flags: for `main` and the manual."""
    made = _Parser(
        prog="beanpoled", description="One node of a Beanpole cluster", epilog=EXIT_WORDS
    )
    made.add_argument("--version", action="version", version=f"beanpoled {program.words()}")
    made.add_argument(
        "--dump-wal",
        metavar="DIR",
        help="show the records of the log in a data directory, and exit",
    )
    made.add_argument(
        "--check",
        action="store_true",
        help="look at the configuration and this machine, say what is wrong, start nothing",
    )
    configuration.add_flags(made)
    return made


def _log_in(directory: str) -> str:
    """Return the folder of the log in a data directory; it may be the given folder itself.

    Raises:
        ConfigurationError: it is no folder.
    """
    if not os.path.isdir(directory):
        raise ConfigurationError(f"--dump-wal {directory}: it is no folder")
    log = os.path.join(directory, "log")
    return log if os.path.isdir(log) else directory


def main() -> None:
    """Run `beanpoled`."""
    if not __debug__:
        sys.exit("beanpoled: asserts are part of its safety; do not run it with python -O")
    try:
        arguments = parser().parse_args()
        if arguments.dump_wal is not None or arguments.check:
            first_process.restore()
        if arguments.dump_wal is not None:
            print_lines(describe(_log_in(arguments.dump_wal)))
            return
        config = configuration.from_arguments(arguments, os.environ)
        if arguments.check:
            sys.exit(_check(config))
    except (BeanpoleError, OSError) as error:
        print(f"beanpoled: {error}", file=sys.stderr)
        sys.exit(_exit_status(error))
    lines = LogLines(config)
    lines.begin()
    sys.stderr = StandardError(lines)
    atexit.register(lines.flush)
    # A node that is still reading its disk has nothing to reload or to drain, and no reason to end.
    for one in first_process.RUNNING_SIGNALS:
        signal.signal(one, signal.SIG_IGN)
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, partial(_stop_early, lines))
    again = partial(configuration.from_arguments, arguments, os.environ, is_again=True)
    reading = Reading(config, again)
    try:
        uvloop.run(run(prepare_process(config, lines), reading=reading, lines=lines))
    except (BeanpoleError, OSError) as error:
        lines.end(starting.words(error), ERROR)
        sys.exit(_exit_status(error))


def _note_failure(host: AioHost, _kind: object, error: BaseException | None, _: object) -> bool:
    """Tell the host why a start failed, before it waits for the disk."""
    if isinstance(error, BeanpoleError | OSError):
        host.failed(starting.words(error), _exit_status(error))
    return False


def _stop_early(lines: LogLines, _number: int, _frame: object) -> NoReturn:
    """End a node that still reads its disk: it has no clients, and nothing to hand over.

    As process 1 of a container it would miss the signal without a handler, begin to serve, and be
    killed in the middle of that.
    """
    lines.end("stopped before its disk was read")
    os._exit(0)


def _check(config: NodeConfig) -> int:
    """Print the findings of `checking`, and return the exit status of the worst."""
    found = list(checking.findings(config))
    print_lines(f"{weight}: {words}" for weight, words in found)
    weights = {weight for weight, _ in found}
    if checking.MISCONFIGURED in weights:
        return EXIT_CONFIGURATION
    return 1 if checking.WRONG in weights else 0


class _Parser(Parser):
    """A parser that treats a wrong flag as a configuration error."""

    def error(self, message: str) -> NoReturn:
        """Exit with the error alone: the usage has forty lines, which would hide it."""
        self.exit(EXIT_CONFIGURATION, f"{self.prog}: {message}; see {self.prog} --help\n")

    def parse_args(  # type: ignore[override]  # as it is used here
        self, args: Sequence[str] | None = None
    ) -> argparse.Namespace:
        """Parse the command line; report an unknown flag together with the nearest known one."""
        arguments, unknown = self.parse_known_args(args)
        if unknown:
            self.error(_unknown(unknown[0], self._option_string_actions))
        return arguments


def _unknown(word: str, flags: Iterable[str]) -> str:
    flag = word.partition("=")[0]
    if not flag.startswith("-"):
        return f"{word!r} is no flag; a configuration file is given as --config FILE"
    near = difflib.get_close_matches(flag, flags, n=1)
    return f"unknown flag {flag}" + (f"; did you mean {near[0]}?" if near else "")


def _exit_status(error: Exception) -> int:
    """Return the exit status that tells a supervisor whether a restart may help."""
    return EXIT_CONFIGURATION if isinstance(error, ConfigurationError | WrongIdentity) else 1


def bound_heap() -> None:
    """Let the C library return large blocks to the system; must be called before threads start.

    By default it raises its threshold to the largest block that was freed, up to 32 MiB. From then
    on growing tables and buffers are moved within its heap and leave holes: with a million jobs in
    one dict a node took 636 bytes for each instead of 565.
    """
    with contextlib.suppress(OSError, AttributeError):  # not glibc: nothing to set
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
        mallopt(M_ARENA_MAX, ARENAS_MAX)


def prepare_process(config: NodeConfig, lines: LogLines) -> NodeConfig:
    """Set limits of the process and of the interpreter.

    The interpreter keeps its switch interval of 5 ms: with 0.5 ms the disk thread got it no sooner
    (p99 at 64 connections 9.9 ms in both), and every operation cost a tenth more.

    Returns:
        The configuration, with `connections_max` lowered to the available file descriptors.
    """
    gc.set_threshold(*collecting.COLLECT_AFTER)
    bound_heap()
    return descriptors.fitting(config, lines)


def replica_config(config: NodeConfig, disks: Disks) -> ReplicaConfig:
    """The configuration of the replica."""
    own = disks.own
    return ReplicaConfig(
        node_id=config.node_id,
        members=tuple(sorted(config.members)),
        directory=config.data_dir,
        identity=own.owner,
        raft_min_s=config.raft_min_ms / 1000,
        raft_max_s=config.raft_max_ms / 1000,
        heartbeat_s=config.heartbeat_ms / 1000,
        durability="memory" if config.durability == "memory" else "sync",
        log_memory_bytes=config.log_memory_bytes,
        log_retain_bytes=config.log_retain_bytes,
        snapshot_bytes_min=config.snapshot_bytes_min,
        segment_bytes=config.wal_segment_bytes,
        disk_reserve_bytes=config.disk_reserve_bytes,
        rejoin=own.standing == REJOINING,
        birth=own.birth,
        log_base=own.log_base,
        note_log=disks.note_log,
    )


async def run(
    config: NodeConfig,
    frontends: Table = FRONTENDS,
    reading: Reading | None = None,
    lines: LogLines | None = None,
) -> None:
    """Run one node until it is stopped.

    Args:
        config: of the node.
        frontends: the protocols that it speaks.
        reading: reloads the configuration, for SIGHUP.
        lines: of its log; they are made here if there are none yet.

    Raises:
        StorageError: the data directory cannot be used.
        OSError: an address is taken, or the disk refuses.
    """
    loop = asyncio.get_running_loop()
    host = AioHost(config, loop, lines)
    loop.set_exception_handler(partial(_stop_on_bug, lines=host.lines))
    with starting.data_directory(config):
        lock = host.files.hold(config.data_dir)
        if make_room_to_start(host.files, config.data_dir):
            host.log("the disk is full: the ballast is given up for the start", WARNING)
        disks = Disks(host.files, config, os.urandom(DISK_ID_BYTES))
    _tell(config, host)
    starting.refuse_taken_addresses(config)
    host.clients.check_paths()
    node = Node(config, host, disks, frontends=frontends)
    host.clients.frontends = node.frontends
    node.leader.saved_clock.load()
    view = LocalNodeView(node, host.trust)
    host.trust.active_version = lambda: node.context.machine.version
    audit = AuditLog(config.data_dir, config.node_id, partial(host.log, level=WARNING))
    node.clients.audit = audit.record
    view.audit_lost = lambda: audit.lost
    reloader = Reloader(reading or Reading(config, None), config, host.lines, host.trust)
    reloader.take = node.take_limits
    supervision = Supervision(node, host, reloader)
    rpc = _rpc_server(host, node, view, audit, supervision)
    http = HttpServer(view)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(lock.release)
        stack.callback(host.close_files)
        stack.push(partial(_note_failure, host))
        stack.callback(audit.close)
        stack.push_async_callback(host.peer_client.close)
        if disks.own.runs:
            with starting.data_directory(config):
                start_replica(node)
        else:
            node.introductions.begin = partial(_begin, node, host)
        await http.start(config.http_listen)
        stack.push_async_callback(http.stop)
        await rpc.start(config.grpc_listen)
        stack.push_async_callback(rpc.stop)
        await host.links.start(node.router, node.introductions)
        stack.push_async_callback(host.links.stop)
        if config.events == "on":
            host.warm_up()
        supervision.begin()
        await host.wait_for_exit()


def _tell(config: NodeConfig, host: AioHost) -> None:
    """Log what starts here, and what an operator must know of its configuration."""
    host.log(f"starting {program.words()}")
    host.log(reach.words(config))
    too_much = memory_budget.warning(config, config.queue_bytes_max, memory.found())
    if too_much is not None:
        host.log(too_much, WARNING)
    if odd := secret_file.warning(config.peer_secret, config.peer_secret_file):
        host.log(odd, WARNING)
    for words in (*host.trust.time_faults(), *host.trust.list_faults()):
        host.log(words, WARNING)
    if config.durability == "memory":
        words = "durability is memory: acknowledged jobs are lost when the power is"
        host.log(words, WARNING)


def _rpc_server(
    host: AioHost, node: Node, view: LocalNodeView, audit: AuditLog, supervision: Supervision
) -> RpcServer:
    """Return the gRPC server with all services and the interceptors of each call."""
    callers = Callers(node)
    servicers = (
        EventsServicer(node.context.config, host, node.events, lambda: view.birth),
        QueueServicer(node, callers),
        JobAdminServicer(node, callers),
        PoliciesServicer(node, callers),
        BackupServicer(view, callers),
        LiveServicer(view),
        UsersServicer(node, callers),
        NodeAdminServicer(view, host.peer_client, audit, supervision),
    )
    services: list[Service] = [servicer.add_to for servicer in servicers]
    # Refused calls are logged, too.
    door = Door()
    auditor = Auditor(audit.record, lambda _: CALLER.get().name)
    interceptors = (auditor, Guard(node, callers, door))
    return RpcServer(view, host.peer_client, host.trust, services, interceptors, door)


def start_replica(node: Node) -> None:
    """Start the replica of a node whose disk knows its cluster.

    Raises whatever `Node.start` raises.
    """
    context = node.context
    config = replica_config(context.config, context.disks)
    node.start(PySyncObjReplica(config, node.callbacks, context.host.files))


def _begin(node: Node, host: AioHost) -> None:
    """Start the replica of a running node, now that its disk knows its cluster."""
    try:
        with starting.data_directory(node.context.config):
            start_replica(node)
    except (BeanpoleError, OSError) as error:
        node.context.fatal(starting.words(error))
    host.links.renew()


def _stop_on_bug(
    loop: asyncio.AbstractEventLoop, context: dict[str, object], lines: LogLines | None = None
) -> None:
    """Stop on an exception in a callback: it is a bug, and its effects are unknown."""
    exception = context.get("exception")
    if isinstance(exception, ConnectionError | TimeoutError) and _OF_SOCKETS & context.keys():
        return  # a socket that broke while it was being closed
    try:
        loop.default_exception_handler(context)
        if lines is not None:
            lines.flush()
    finally:  # the words may fail, too, as by a clock beyond the years that Python knows
        os._exit(1)
