"""Report errors of the system at a node's start in words that name the setting.

The system's errors name a file or an address at best. `checking` performs the same checks without a
start, and has the messages for addresses.
"""

import contextlib
import errno
from collections.abc import Iterator
from typing import Final

from beanpole.addresses import UNIX_PREFIX
from beanpole.errors import ConfigurationError, Damaged, StorageError
from beanpole.storage.remedies import told
from beanpoled import checking
from beanpoled.config.node import NodeConfig

# For a damaged file of which nothing but its bytes is known. The remedies that readers of files
# name themselves are better: both have one of these words.
DAMAGE_REMEDY: Final = (
    "keep a copy of the data directory, then start on an empty one with --rejoin, or see "
    "'A file is damaged' in docs/operating.md"
)
_REMEDY_WORDS: Final = ("--rejoin", "remove it")


def words(error: Exception) -> str:
    """Return the last line of a start that failed, with a remedy if a file is damaged."""
    found = str(error)
    if isinstance(error, Damaged) and not any(word in found for word in _REMEDY_WORDS):
        return f"{found}; {DAMAGE_REMEDY}"
    return found


@contextlib.contextmanager
def data_directory(config: NodeConfig) -> Iterator[None]:
    """Name the data directory in an error of the system.

    Raises:
        ConfigurationError: the path is no directory and cannot be one.
        StorageError: any other error of the system; the message has a remedy if one is known.
    """
    try:
        yield
    except OSError as error:
        what = f"data_dir = {config.data_dir!r}"
        if error.errno in (errno.ENOTDIR, errno.EEXIST):
            words = "is not allowed: it must be a directory, and its path goes over a file"
            raise ConfigurationError(f"{what} {words}") from error
        raise StorageError(f"{what} cannot be used: {told(error)}") from error


def refuse_taken_addresses(config: NodeConfig) -> None:
    """End a start that cannot listen, before the node takes part in anything.

    UNIX sockets are checked by `ClientServer.check_paths`.

    Raises:
        OSError: the message names all settings whose addresses cannot be used. It is no
            configuration error, because an address of this machine may come up later than the node.
    """
    found = [
        f"{name}: {refusal.words}"
        for name, address in config.own_addresses()
        if not address.startswith(UNIX_PREFIX) and (refusal := checking.refusal(address))
    ]
    if found:
        raise OSError("cannot listen: " + "; ".join(found))
