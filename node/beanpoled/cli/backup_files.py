"""Files of backups as commands open them: plain or encrypted, a named file or standard input.

This file has the options for keys, and reads a backup from its beginning; a file can be read
several times. The encryption is in `disk.age_streams`; each command processes the bytes.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from beanpole.client import where
from beanpole.errors import ConfigurationError
from beanpole.storage.backups import Source
from beanpoled.disk import age_keys
from beanpoled.disk.age_streams import Decrypting
from beanpoled.trust.secret_file import read_secret

if TYPE_CHECKING:
    from beanpoled.disk.age_keys import Identity

PIPE: Final = "-"
# Long enough to tell an encrypted file from a plain one.
_HEAD_BYTES: Final = 64


def add_identities(parser: Any, dest: str = "identity") -> None:
    """Add the options for reading an encrypted backup.

    Args:
        parser: of a command.
        dest: `more_identities` where the command in front of it has the option, too: argparse would
            drop what was given there.
    """
    parser.add_argument(
        "--identity",
        dest=dest,
        action="append",
        metavar="KEYFILE",
        help="decrypts an encrypted backup: a file of age-keygen, or a private key of SSH; may be "
        "repeated",
    )
    parser.add_argument(
        "--passphrase-file",
        metavar="FILE",
        help=f"the passphrase of a KEYFILE that has one (default: {where.BACKUP_PASSPHRASE})",
    )


def identities(
    arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ
) -> "list[Identity]":
    """Return the keys that the options name.

    Raises:
        ConfigurationError: a key cannot be used; no secret is shown.
    """
    files = [*(arguments.identity or ()), *getattr(arguments, "more_identities", ())]
    if not files:
        if arguments.passphrase_file:
            raise ConfigurationError("--passphrase-file has no effect without --identity KEYFILE")
        return []
    path = arguments.passphrase_file
    if not path:
        return age_keys.identities(files, _given(environment))
    passphrase = read_secret("--passphrase-file", path)
    return age_keys.identities(files, passphrase, f"--passphrase-file = {path!r} is empty")


def _given(environment: Mapping[str, str]) -> str:
    """Return the passphrase of the environment: its bytes, whatever encoding the locale has."""
    try:
        return os.fsencode(environment.get(where.BACKUP_PASSPHRASE, "")).decode()
    except UnicodeError:
        # The error itself has a part of the secret.
        raise ConfigurationError(
            f"{where.BACKUP_PASSPHRASE} is not allowed: it is no text in UTF-8"
        ) from None


class Opened:
    """A backup that is open for reading.

    Attributes:
        name: as given on the command line, for messages.
        total: its size in bytes, encrypted or not; 0 for a pipe.
        encrypted: whether it is encrypted.
    """

    def __init__(self, stream: BinaryIO, name: str, keys: "list[Identity]") -> None:
        """Read the first bytes.

        Raises:
            ConfigurationError: it is encrypted, and not to a given key.
            OSError: it cannot be read.
        """
        self.name = name
        self.total = 0 if name == PIPE else os.fstat(stream.fileno()).st_size
        self._stream = stream
        self._keys = keys
        self._head = _read(stream, _HEAD_BYTES)
        self._first = True
        self.encrypted = self._head.startswith((age_keys.MAGIC, age_keys.ARMOR))
        if self._head.startswith(age_keys.SCRYPT):
            raise ConfigurationError(
                f"{name} is encrypted with a passphrase and not to a key, which is not read here: "
                "age -d decrypts it"
            )
        if self.encrypted and not keys:
            raise ConfigurationError(f"{name} is encrypted: --identity KEYFILE names the key")

    def check_repeats(self, words: str) -> None:
        """Refuse a pipe by any name, such as /dev/stdin or one of `mkfifo`.

        Args:
            words: what reads the backup how often.

        Raises:
            ConfigurationError: it can be read only once.
        """
        if not self._stream.seekable():
            raise ConfigurationError(f"{words}, and {self.name} is a pipe: name a file")

    @contextlib.contextmanager
    def reading(self) -> Iterator[Source]:
        """Yield the decrypted bytes of the backup from the beginning; of a pipe only once."""
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
    """A stream of bytes that were read already, followed by the rest."""

    def __init__(self, head: bytes, stream: BinaryIO) -> None:
        self._head = head
        self._stream = stream

    def read(self, size: int, /) -> bytes:
        if not self._head:
            return _read(self._stream, size)
        data, self._head = self._head[:size], self._head[size:]
        return data + _read(self._stream, size - len(data)) if len(data) < size else data


def _read(stream: BinaryIO, size: int) -> bytes:
    """Read, and name the file in an error, which may else seem to be one of what is written."""
    try:
        return stream.read(size)
    except OSError as error:
        # A file that is opened by its descriptor has a number for a name; its owner names it.
        if isinstance(stream.name, str):
            error.filename = stream.name
        raise


@contextlib.contextmanager
def opened(name: str, keys: "list[Identity]") -> Iterator[Opened]:
    """Open a backup, or take standard input.

    Raises:
        ConfigurationError: it cannot be opened, or as `Opened` raises.
    """
    if name == PIPE:
        if sys.stdin is None:
            raise ConfigurationError("standard input is closed; give a file")
        yield Opened(sys.stdin.buffer, name, keys)
        return
    if not name:
        raise ConfigurationError("FILE is empty; it must be a backup, or - for standard input")
    try:
        stream = open(name, "rb")  # noqa: SIM115 - an error of the caller is not one of opening
    except OSError as error:
        raise ConfigurationError(f"cannot read {name}: {error.strerror}") from None
    with stream:
        yield Opened(stream, name, keys)
