"""Files of backups as commands open them: plain or encrypted, named or standard input.

Belongs here: the options for keys, and reading a file from its beginning, several times if it is
one. The encryption is in `disk.age_streams`; what a command does with the bytes is its own.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from beanpole.errors import ConfigurationError
from beanpole.storage.backups import Source
from beanpoled.disk import age_keys
from beanpoled.disk.age_streams import Decrypting
from beanpoled.trust.secret_file import read_secret

if TYPE_CHECKING:
    from beanpoled.disk.age_keys import Identity

PIPE: Final = "-"
PASSPHRASE: Final = "BEANPOLE_BACKUP_PASSPHRASE"
# Longer than what tells a plain file from an encrypted one.
_HEAD_BYTES: Final = 64


def add_identities(parser: Any) -> None:
    """Add the options by which an encrypted backup is read."""
    parser.add_argument(
        "--identity",
        action="append",
        default=[],
        metavar="KEYFILE",
        help="decrypts an encrypted backup: a file of age-keygen, or a private key of SSH; may be "
        "repeated",
    )
    parser.add_argument(
        "--passphrase-file",
        metavar="FILE",
        help=f"the passphrase of a KEYFILE that has one (default: {PASSPHRASE})",
    )


def identities(
    arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ
) -> "list[Identity]":
    """Return the keys that the options name.

    Raises:
        ConfigurationError: one cannot be used; no secret is shown.
    """
    if not arguments.identity:
        if arguments.passphrase_file:
            raise ConfigurationError("--passphrase-file is of no use without --identity KEYFILE")
        return []
    passphrase = environment.get(PASSPHRASE, "")
    if arguments.passphrase_file:
        passphrase = read_secret("--passphrase-file", arguments.passphrase_file)
    return age_keys.identities(arguments.identity, passphrase)


class Opened:
    """A backup that is open for reading.

    Attributes:
        name: as it was given, for messages.
        total: its bytes, encrypted or not; 0 for a pipe.
        encrypted: whether it is.
    """

    def __init__(self, stream: BinaryIO, name: str, keys: "list[Identity]") -> None:
        """Look at the first bytes.

        Raises:
            ConfigurationError: it is encrypted, and not to a key that is there.
            OSError: it cannot be read.
        """
        self.name = name
        self.total = 0 if name == PIPE else os.fstat(stream.fileno()).st_size
        self._stream = stream
        self._keys = keys
        self._head = stream.read(_HEAD_BYTES)
        self._first = True
        self.encrypted = self._head.startswith((age_keys.MAGIC, age_keys.ARMOR))
        if self._head.startswith(age_keys.SCRYPT):
            raise ConfigurationError(
                f"{name} is encrypted with a passphrase and not to a key, which is not read here: "
                "age -d decrypts it"
            )
        if self.encrypted and not keys:
            raise ConfigurationError(f"{name} is encrypted: --identity KEYFILE names the key")

    @contextlib.contextmanager
    def reading(self) -> Iterator[Source]:
        """Give the bytes of the backup from the first one on, decrypted; a pipe only once."""
        if not self._first:
            self._stream.seek(_HEAD_BYTES)
        self._first = False
        whole = _Joined(self._head, self._stream)
        if not self.encrypted:
            yield whole
            return
        with Decrypting(whole, self.name, self._keys) as plain:
            yield plain


class _Joined:
    """Bytes that were read already, and then those behind them."""

    def __init__(self, head: bytes, stream: BinaryIO) -> None:
        self._head = head
        self._stream = stream

    def read(self, size: int, /) -> bytes:
        if not self._head:
            return self._stream.read(size)
        data, self._head = self._head[:size], self._head[size:]
        return data + self._stream.read(size - len(data)) if len(data) < size else data


@contextlib.contextmanager
def opened(name: str, keys: "list[Identity]") -> Iterator[Opened]:
    """Open a backup, or take standard input.

    Raises:
        ConfigurationError: there is none, or from `Opened`.
    """
    if name == PIPE:
        yield Opened(sys.stdin.buffer, name, keys)
        return
    try:
        descriptor = os.open(name, os.O_RDONLY)
    except OSError as error:
        raise ConfigurationError(f"cannot read {name}: {error.strerror}") from None
    with open(descriptor, "rb") as stream:
        yield Opened(stream, name, keys)
