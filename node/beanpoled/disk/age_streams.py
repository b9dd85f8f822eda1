"""Streams that encrypt or decrypt a backup on its way, in the format of `age`, by pyrage.

The library pulls from a reader and pushes into a writer until all is through; writers and readers
of backups do the same at the other ends. So each stream has a thread that runs the library, and a
pipe of the kernel to it: plain bytes are in memory only, and a slow side holds up the other.
Keys are in `age_keys`, what is encrypted is the callers' business.
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

# The words of the library for a file of other recipients; it has no type of its own for that.
_OF_OTHERS: Final = "No matching keys"


class _GivenUp(Exception):
    """The plain side ended early: what was encrypted so far must not look whole."""


class Encrypting:
    """Encrypts what is written to it, and is whole when its block ends without an error.

    Attributes:
        written: bytes that reached the target so far.
        digest: SHA-256 over them, after the block.
    """

    def __init__(self, target: Sink, recipients: "list[Recipient]") -> None:
        """Begin.

        Args:
            target: takes the encrypted bytes, in a thread of this object, until the block ends.
            recipients: whose identities decrypt it; at least one.

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
            OSError: the target takes no more.
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
            # A failure of the target is known already, and the library's error only quotes it.
            self._error = self._error or error
        finally:
            os.close(self._from)

    def pull(self, size: int) -> bytes:
        """Give the library plain bytes; an end that came too early is none."""
        data = os.read(self._from, size)
        if not data and not self._whole:
            raise _GivenUp
        return data

    def push(self, data: bytes) -> None:
        """Take encrypted bytes from the library."""
        try:
            self._target.write(data)
        except BaseException as error:
            self._error = error
            raise
        self._hash.update(data)
        self.written += len(data)


class Decrypting:
    """Reads what another stream has encrypted; each byte was authenticated before it is given."""

    def __init__(self, source: Source, name: str, identities: "list[Identity]") -> None:
        """Begin.

        Args:
            source: gives the encrypted bytes, in a thread of this object, until the block ends.
            name: of the file, for messages.
            identities: one of them has to be a recipient.

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
        """Return this many plain bytes, or fewer at the end.

        Raises:
            ConfigurationError: no identity is a recipient.
            Damaged: the file is not as it was encrypted.
            OSError: the source cannot be read.
        """
        data = self._from.read(size)
        if len(data) < size:
            self._thread.join()
            self._end()
        return data

    def _end(self) -> None:
        """See that the end was one."""
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
        """Give the library encrypted bytes."""
        try:
            return self._source.read(size)
        except OSError as error:
            self._failed = error
            raise

    def push(self, data: bytes) -> None:
        """Take plain bytes from the library."""
        left = memoryview(data)
        while left:
            left = left[os.write(self._to, left) :]


class _Pulled:
    """What the library reads."""

    def __init__(self, side: Encrypting | Decrypting) -> None:
        self._side = side

    def read(self, size: int, /) -> bytes:
        return self._side.pull(size)


class _Pushed:
    """What the library writes to."""

    def __init__(self, side: Encrypting | Decrypting) -> None:
        self._side = side

    def write(self, data: bytes, /) -> int:
        self._side.push(data)
        return len(data)
