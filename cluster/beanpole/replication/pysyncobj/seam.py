"""Replace the library's module globals, once per process, by delegates to the current replica.

The library takes its clock, its random numbers, its journal and its serializer from module
globals. One process may hold several replicas with different clocks and disks (a simulator does),
so every call into the library must follow an `enter(...)`, which sets the current replica.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, NoReturn

import pysyncobj.journal
import pysyncobj.serializer
import pysyncobj.syncobj
import pysyncobj.tcp_connection

from beanpole.errors import ReplicationError
from beanpole.replication.pysyncobj.journal import LogJournal


class CallContext:
    """The values of the replaced globals for one replica."""

    __slots__ = ("journal", "random", "serializer")

    def __init__(
        self,
        random: Callable[[], float],
        journal: LogJournal,
        serializer: pysyncobj.serializer.Serializer,
    ) -> None:
        self.random = random
        self.journal = journal
        self.serializer = serializer


class _Current:
    """The replica for which the library is being called, and its time."""

    __slots__ = ("context", "now_s")

    def __init__(self) -> None:
        self.now_s = 0.0
        self.context: CallContext | None = None


_CURRENT: Final = _Current()


def enter(context: CallContext, now_s: float) -> None:
    """Set the replica and the time for the following calls into the library.

    There is no counterpart for leaving: each call into the library is preceded by `enter`. The time
    is constant during one call; the repairs F8 and B7 prevent every loop of the library that waits
    for time to pass.
    """
    _CURRENT.context = context
    _CURRENT.now_s = now_s


def now_s() -> float:
    """Return the time of the current call into the library."""
    return _CURRENT.now_s


def _context() -> CallContext:
    context = _CURRENT.context
    assert context is not None, "the library was called outside of any replica"
    return context


def random() -> float:
    """Return a random number of the current replica, 0 to 1."""
    return _context().random()


class _Poller:
    """A poller without descriptors: the host's loop reads the links. Saves a system call a tick."""

    def poll(self, timeout: float) -> None:
        """Return at once."""


class _NoPickle:
    """A safeguard (H1, H2): every use of pickle raises an error."""

    def __getattr__(self, name: str) -> NoReturn:
        raise ReplicationError(f"the raft library tried to use pickle.{name}")


def _no_pickle(*_: object) -> NoReturn:
    raise ReplicationError("the raft library tried to use pickle")


class _Path:
    @staticmethod
    def isfile(_: str) -> bool:
        # `snapshots.py` verifies and loads the dump before the first tick: the library's own
        # loading swallows every exception and continues with half a machine (F3).
        return False


def install() -> None:
    """Replace the globals; idempotent."""
    library: Any = pysyncobj.syncobj
    library.monotonicTime = now_s
    library.random = SimpleNamespace(random=random)
    library.createJournal = lambda _: _context().journal
    library.Serializer = lambda *_: _context().serializer
    library.createPoller = lambda _: _Poller()
    # Otherwise each object with another configuration opens a pipe that is never closed.
    library.PIPE_NOTIFIER_ENABLED = False
    library.os = SimpleNamespace(path=_Path)
    library.pickle = _NoPickle()
    others: tuple[Any, ...] = (pysyncobj.serializer, pysyncobj.tcp_connection)
    for module in others:
        module.pickle = _NoPickle()
    journal: Any = pysyncobj.journal
    journal.loads = journal.dumps = _no_pickle
