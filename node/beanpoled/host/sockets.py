"""Bind the sockets on which a node listens, and remove stale UNIX sockets. No event loop here.

Also the error of work for what was received from one, which the event loop would hide.
"""

import contextlib
import errno
import os
import socket
import stat
from typing import Final

from beanpole.addresses import TLS_PREFIX, UNIX_PREFIX, split_address
from beanpole.errors import ConfigurationError

# Ten thousand workers may connect at once after a restart.
BACKLOG: Final = 8192


class Failed(Exception):
    """The system refused something in the work for received bytes, such as a read of the log.

    uvloop takes an `OSError` for one of the connection, closes it and tells nobody. The effects of
    this one are unknown, so the node has to end.
    """


def bind(address: str, listen: bool = False) -> socket.socket:
    """Return a bound socket of an address of the configuration.

    Binding alone does not detect another server that is about to listen there. `[::]` takes IPv4,
    too, unless the system's `bindv6only` forbids it; the event loops would restrict it to IPv6.

    Raises:
        OSError: the address is taken or not of this machine; of a UNIX socket EADDRINUSE, also if
            it is not certain that its server is gone.
        ConfigurationError: the path of a UNIX socket is another kind of file.
    """
    if address.startswith(UNIX_PREFIX):
        path = address.removeprefix(UNIX_PREFIX)
        if is_stale(path):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        target: str | tuple[str, int] = path
    else:
        host, port = split_address(address.removeprefix(TLS_PREFIX))
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        raw = socket.socket(family, socket.SOCK_STREAM)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        target = (host, port)
    try:
        raw.bind(target)
        if listen:
            raw.listen(BACKLOG)
    except OSError as error:
        raw.close()
        raise OSError(error.errno, f"{address}: {error.strerror or error}") from error
    raw.setblocking(False)
    return raw


def is_stale(path: str) -> bool:
    """Whether the path of a UNIX socket has one whose server is gone; False: nothing is there.

    Raises:
        OSError: EADDRINUSE, if a server is there or may be; or the system refuses the path.
        ConfigurationError: another kind of file is there.
    """
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise ConfigurationError(f"listen = 'unix:{path}': there is a file that is no socket")
    except FileNotFoundError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # a full backlog would block the start
        try:
            probe.connect(path)
        except FileNotFoundError:
            return False  # it has just been removed
        except ConnectionRefusedError:
            return True
        except OSError as error:
            # All else comes from a socket that is open: EAGAIN where its backlog is full,
            # EPROTOTYPE where it takes datagrams. EACCES says nothing about it.
            words = f"it may be in use: {error.strerror}"
        else:
            words = "another server accepts clients there"
    raise OSError(errno.EADDRINUSE, f"unix:{path}: {words}")
