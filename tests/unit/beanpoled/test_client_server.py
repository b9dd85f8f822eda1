"""The sockets for clients: addresses and paths that another program already uses."""

import asyncio
import errno
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import pytest
import uvloop

from beanpole.errors import ConfigurationError
from beanpoled import checking
from beanpoled.frontends.frontend import Frontends
from beanpoled.host.aio_clients import ClientServer
from beanpoled.host.seam import INFO, WARNING, Log
from tests.unit.beanpoled.fakes import trust_of, until
from tests.unit.node.stage import config

Fatal = Callable[[str], None]


@pytest.fixture
def taken() -> Iterator[str]:
    """Return an address at which another program listens."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield f"127.0.0.1:{other.getsockname()[1]}"


def opened(address: str, unconfigured: frozenset[str]) -> tuple[list[str], list[str]]:
    """Open a protocol at an address, beside a free one; return log lines and fatal errors."""
    logged: list[str] = []
    fatal: list[str] = []

    def log(line: str, level: int = INFO) -> None:
        assert level == WARNING
        logged.append(line)

    async def run() -> None:
        listeners = MappingProxyType({"gearman": ("127.0.0.1:0", address)})
        made = config(listen=(), listeners=listeners, unconfigured=unconfigured)
        server = ClientServer(made, asyncio.get_running_loop(), log, fatal.append, trust_of())
        server.frontends = cast(Frontends, {"gearman": None})
        server.open("gearman")
        server.close()

    asyncio.run(run())
    return logged, fatal


def test_a_default_address_that_is_taken_is_a_warning(taken: str) -> None:
    (line,), fatal = opened(taken, frozenset({"gearman"}))
    assert line.startswith(f"no clients of gearman can come: [Errno 98] {taken}: Address")
    assert line.endswith("give another one in the setting listeners")
    assert not fatal


def test_an_address_of_the_configuration_that_is_taken_is_fatal(taken: str) -> None:
    logged, (line,) = opened(taken, frozenset())
    assert line.startswith(f"cannot listen for clients of gearman: [Errno 98] {taken}: Address")
    assert not logged


class Reopened:
    """A server that has accepted clients of two protocols and was closed, as when it is cut off.

    Attributes:
        port: of Gearman, which nobody has now.
        logged: the lines, with their levels.
    """

    def __init__(self, unconfigured: frozenset[str] = frozenset()) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.logged: list[tuple[str, int]] = []
        self.fatal: list[str] = []
        places = {"gearman": ("127.0.0.1:0", f"127.0.0.1:{self.port}"), "workq": ("127.0.0.1:0",)}
        made = config(listen=(), listeners=MappingProxyType(places), unconfigured=unconfigured)
        loop = asyncio.get_running_loop()
        self.server = ClientServer(made, loop, self._log, self.fatal.append, trust_of())
        self.server.frontends = cast(Frontends, dict.fromkeys(places))
        self.open()
        assert self.is_open("gearman")
        self.server.close()
        self.server.reopen_period_s = 0.001

    def _log(self, line: str, level: int = INFO) -> None:
        self.logged.append((line, level))

    def open(self) -> None:
        self.server.open("gearman")
        self.server.open("workq")

    def is_open(self, protocol: str) -> bool:
        return protocol in self.server._open

    def take(self) -> socket.socket:
        """Return another program's socket at the port of Gearman."""
        other = socket.socket()
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", self.port))
        other.listen()
        return other


@pytest.mark.parametrize("unconfigured", [frozenset[str](), frozenset({"gearman"})])
def test_a_port_that_is_taken_for_a_moment_is_opened_when_it_is_free(
    unconfigured: frozenset[str],
) -> None:
    """A node that came back to the majority ended, or served one protocol less for ever."""

    async def run() -> None:
        scene = Reopened(unconfigured)
        with scene.take():
            scene.open()
            assert scene.is_open("workq"), "others go on"
            first = scene.server._retries["gearman"]
            scene.open()  # as when the version of the machine rises
            assert scene.server._retries["gearman"] is first
            await until(lambda: scene.server._retries["gearman"] is not first)
        await until(lambda: scene.is_open("gearman"))
        (begun, level), again = scene.logged
        words = "cannot listen again for clients of gearman yet: [Errno 98] 127.0.0.1:"
        assert begun.startswith(words) and level == WARNING
        assert begun.endswith("Address already in use; trying each second, 30 times at most")
        assert again == ("listening for clients of gearman again", INFO)
        assert not scene.fatal and not scene.server._retries
        scene.server.close()

    asyncio.run(run())


def test_a_port_that_stays_taken_ends_the_node_after_all_tries() -> None:
    async def run() -> None:
        scene = Reopened()
        with scene.take():
            scene.open()
            await until(lambda: bool(scene.fatal))
        (line,) = scene.fatal
        assert line.startswith("cannot listen for clients of gearman: [Errno 98]")
        assert len(scene.logged) == 1 and not scene.server._retries
        scene.server.close()

    asyncio.run(run())


def test_a_default_port_that_stays_taken_is_a_warning_after_all_tries() -> None:
    async def run() -> None:
        scene = Reopened(frozenset({"gearman"}))
        with scene.take():
            scene.open()
            await until(lambda: len(scene.logged) == 2)
        line, level = scene.logged[1]
        assert line.startswith("no clients of gearman can come: [Errno 98]") and level == WARNING
        assert not scene.fatal and not scene.server._retries
        scene.server.close()

    asyncio.run(run())


def test_a_node_that_closes_its_ports_again_tries_no_more() -> None:
    """Cut off once more, or told to stop, it would have served, or ended by an error."""

    async def run() -> None:
        scene = Reopened()
        with scene.take():
            scene.open()
            retry = scene.server._retries["gearman"]
            scene.server.close()
            assert retry.cancelled() and not scene.server._retries
            scene.open()
            assert len(scene.logged) == 2, "all tries again, and the line"
        await until(lambda: scene.is_open("gearman"))
        scene.server.close()

    asyncio.run(run())


def test_a_listener_may_be_closed_in_the_step_that_opens_it() -> None:
    """The error of the task that serves ended the node."""
    wrong: list[dict[str, Any]] = []
    listeners = MappingProxyType({"gearman": ("127.0.0.1:0", "127.0.0.1:0")})

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: wrong.append(context))
        made = config(listen=(), listeners=listeners)
        server = ClientServer(made, loop, cast(Log, None), cast(Fatal, None), trust_of())
        server.frontends = cast(Frontends, {"gearman": None})
        server.open("gearman")
        opening = server._open["gearman"]._opening
        server.close()
        await asyncio.wait([opening])
        assert opening.exception() is None

    uvloop.run(run())
    assert not wrong


def test_a_path_that_cannot_be_removed_does_not_end_a_stop(tmp_path: Path) -> None:
    """The orderly stop of a node ended there, with its clients' jobs in their hands."""
    paths = [tmp_path / name for name in ("one", "two")]
    listeners = MappingProxyType({"gearman": tuple(f"unix:{path}" for path in paths)})

    async def run() -> None:
        loop = asyncio.get_running_loop()
        made = config(listen=(), listeners=listeners)
        server = ClientServer(made, loop, cast(Log, None), cast(Fatal, None), trust_of())
        server.frontends = cast(Frontends, {"gearman": None})
        server.open("gearman")
        await server._open["gearman"]._opening
        paths[0].unlink()
        paths[0].mkdir()  # as a container makes a path that it mounts
        server.close()
        assert not server._open and not paths[1].exists()

    uvloop.run(run())


def test_an_address_that_was_bound_meanwhile_is_seen() -> None:
    """Two nodes of one machine raise at once: both can bind, but only one can listen."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{other.getsockname()[1]}"
        logged, fatal = opened(address, frozenset({"gearman"}))
        assert not logged, "it can be bound"
        other.listen()
        logged, fatal = opened(address, frozenset({"gearman"}))
        assert len(logged) == 1 and not fatal


def checked(address: str) -> None:
    """Check the paths of a node that is to listen at an address, before it opens anything."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        made = config(listen=(address, "127.0.0.1:0"))
        ClientServer(made, loop, cast(Log, None), cast(Fatal, None), trust_of()).check_paths()

    asyncio.run(run())


def in_use(path: Path, words: str) -> AbstractContextManager[object]:
    """Expect the error of an address in use: a restart may help, as with a TCP address."""
    told = re.escape(f"[Errno {errno.EADDRINUSE}] unix:{path}: {words}")
    return pytest.raises(OSError, match=told)


def test_a_unix_socket_in_use_ends_the_start_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with in_use(path, "another server accepts clients there"):
            checked(f"unix:{path}")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


def test_a_unix_socket_that_takes_datagrams_stays(tmp_path: Path) -> None:
    """A connection to it fails, as one to the socket of a dead server does."""
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(path))
        with in_use(path, "it may be in use: "):
            checked(f"unix:{path}")
        assert path.exists()
        other.close()
        checked(f"unix:{path}")
        assert not path.exists()


def test_a_server_that_accepts_nobody_does_not_hold_a_start(tmp_path: Path) -> None:
    """With a full backlog, a connect that blocks would wait for ever."""
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as other, socket.socket(socket.AF_UNIX) as first:
        other.bind(str(path))
        other.listen(0)
        first.connect(str(path))
        with in_use(path, "it may be in use: "):
            checked(f"unix:{path}")
        assert path.exists()


def test_a_link_to_nothing_at_the_path_of_a_unix_socket_stays(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    path.symlink_to(tmp_path / "nothing")
    with pytest.raises(OSError, match="Address already in use"):
        checked(f"unix:{path}")
    assert path.is_symlink()


def test_a_check_knows_a_unix_socket_in_use(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        found = checking._unix(f"unix:{path}")
        words = f"unix:{path}: another server accepts clients there"
        assert found == checking.Finding(checking.WRONG, words)
    assert checking._unix(f"unix:{path}") is None and path.exists()
    path.unlink()
    path.write_text("mine")
    found = checking._unix(f"unix:{path}")
    assert found is not None and found.weight == checking.MISCONFIGURED


def test_a_unix_socket_of_a_dead_server_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.exists()
    checked(f"unix:{path}")
    assert not path.exists()


def test_a_file_at_the_path_of_a_unix_socket_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(ConfigurationError, match="there is a file that is no socket"):
        checked(f"unix:{path}")
    assert path.read_text() == "mine"
