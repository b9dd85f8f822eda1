"""Bind the sockets on which a node listens, and remove stale UNIX sockets. No event loop here.

Also the error of work for what was received from one, which the event loop would hide.
"""

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

    Binding alone does not detect another server that is about to listen there.

    Raises:
        OSError: the address is taken or not of this machine.
        ConfigurationError: the path of a UNIX socket is another kind of file.
    """
    if address.startswith(UNIX_PREFIX):
        path = address.removeprefix(UNIX_PREFIX)
        _remove_stale(path)
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


def _remove_stale(path: str) -> None:
    """Remove the socket of a server that is gone; refuse anything else."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigurationError(f"listen = 'unix:{path}': there is a file that is no socket")
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        probe.connect(path)
    except OSError:
        os.unlink(path)
    else:
        raise ConfigurationError(f"listen = 'unix:{path}': another server accepts clients there")
    finally:
        probe.close()
