"""Streams that encrypt or decrypt a backup in transit, in the format of `age`, by pyrage.

The library pulls from a reader and pushes into a writer until all data is through; the writers and
readers of backups do the same at the other ends. So each stream has a thread that runs the library,
connected by a kernel pipe: plain bytes stay in memory, and a slow side exerts backpressure on the
other. Keys are in `age_keys`; the callers decide what is encrypted.
"""

import hashlib
import os
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Final

from beanpole.errors import ConfigurationError, Damaged
from beanpole.storage.backups import Sink, Source
from beanpoled.disk.age_keys import library

if TYPE_CHECKING:
    from beanpoled.disk.age_keys import Identity, Recipient

# The library's message for a file with other recipients; it has no error type for that.
_OF_OTHERS: Final = "No matching keys"


class _GivenUp(Exception):
    """The plain side ended early: the output so far must not look complete."""


class Encrypting:
    """A sink that encrypts what is written to it; complete when its block ends without an error.

    Attributes:
        written: bytes that have reached the target so far.
        digest: SHA-256 over them, after the block.
    """

    def __init__(self, target: Sink, recipients: "list[Recipient]") -> None:
        """Begin.

        Args:
            target: takes the encrypted bytes, in a thread of this object, until the block ends.
            recipients: whose identities decrypt the stream; at least one.

        Raises:
            ConfigurationError: the library is not installed.
        """
        assert recipients, "a backup is encrypted to somebody"
        self.written = 0
        self.digest = b""
        self._target = target
        self._hash = hashlib.sha256()
        self._library = library()
        self._recipients = recipients
        self._whole = False
        self._error: BaseException | None = None
        self._from, self._to = os.pipe()
        self._thread = threading.Thread(target=self._run, name="encrypt", daemon=True)

    def __enter__(self) -> "Encrypting":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        self._whole = kind is None
        os.close(self._to)
        self._thread.join()
        if kind is None and self._error is not None:
            raise self._error
        self.digest = self._hash.digest()

    def write(self, data: bytes, /) -> int:
        """Encrypt these bytes.

        Raises:
            OSError: the target accepts no more bytes.
        """
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._to, left) :]
        except BrokenPipeError:
            self._thread.join()
            if self._error is None:
                raise
            raise self._error from None
        return len(data)

    def _run(self) -> None:
        try:
            self._library.encrypt_io(_Pulled(self), _Pushed(self), self._recipients)
        except BaseException as error:
            # An error of the target is stored already, and the library's error only quotes it.
            self._error = self._error or error
        finally:
            os.close(self._from)

    def pull(self, size: int) -> bytes:
        """Return plain bytes to the library; raise if the input ended too early."""
        data = os.read(self._from, size)
        if not data and not self._whole:
            raise _GivenUp
        return data

    def push(self, data: bytes) -> None:
        """Send encrypted bytes of the library to the target."""
        try:
            self._target.write(data)
        except BaseException as error:
            self._error = error
            raise
        self._hash.update(data)
        self.written += len(data)


class Decrypting:
    """A source that decrypts an encrypted stream; it returns only authenticated bytes."""

    def __init__(self, source: Source, name: str, identities: "list[Identity]") -> None:
        """Begin.

        Args:
            source: yields the encrypted bytes, in a thread of this object, until the block ends.
            name: of the file, for messages.
            identities: one of them must be a recipient.

        Raises:
            ConfigurationError: the library is not installed.
        """
        self._source = source
        self._name = name
        self._library = library()
        self._identities = identities
        self._failed: OSError | None = None  # of the source
        self._error: BaseException | None = None  # of the library
        from_library, self._to = os.pipe()
        self._from = os.fdopen(from_library, "rb")
        self._thread = threading.Thread(target=self._run, name="decrypt", daemon=True)

    def __enter__(self) -> "Decrypting":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._from.close()  # the thread ends at its next write
        self._thread.join()

    def read(self, size: int, /) -> bytes:
        """Return exactly `size` plain bytes, or fewer at the end.

        Raises:
            ConfigurationError: no identity is a recipient.
            Damaged: the file is corrupt.
            OSError: the source cannot be read.
        """
        data = self._from.read(size)
        if len(data) < size:
            self._thread.join()
            self._end()
        return data

    def _end(self) -> None:
        """Raise if the stream ended by an error."""
        if self._failed is not None:
            raise self._failed
        if self._error is None:
            return
        if not isinstance(self._error, (self._library.DecryptError, OSError)):
            raise self._error
        if _OF_OTHERS in str(self._error):
            raise ConfigurationError(
                f"{self._name} is encrypted to other keys: no --identity is a recipient of it"
            )
        raise Damaged(f"{self._name} cannot be decrypted: {self._error}")

    def _run(self) -> None:
        try:
            self._library.decrypt_io(_Pulled(self), _Pushed(self), self._identities)
        except BaseException as error:
            self._error = error
        finally:
            os.close(self._to)

    def pull(self, size: int) -> bytes:
        """Return encrypted bytes to the library."""
        try:
            return self._source.read(size)
        except OSError as error:
            self._failed = error
            raise

    def push(self, data: bytes) -> None:
        """Write plain bytes of the library into the pipe."""
        left = memoryview(data)
        while left:
            left = left[os.write(self._to, left) :]


class _Pulled:
    """The library's input."""

    def __init__(self, side: Encrypting | Decrypting) -> None:
        self._side = side

    def read(self, size: int, /) -> bytes:
        return self._side.pull(size)


class _Pushed:
    """The library's output."""

    def __init__(self, side: Encrypting | Decrypting) -> None:
        self._side = side

    def write(self, data: bytes, /) -> int:
        self._side.push(data)
        return len(data)
