"""Stubs of pyrage: only the calls that Beanpole makes."""

from collections.abc import Sequence
from typing import Protocol

from . import passphrase as passphrase
from . import ssh as ssh
from . import x25519 as x25519

class _Reader(Protocol):
    def read(self, size: int, /) -> bytes: ...

class _Writer(Protocol):
    def write(self, data: bytes, /) -> int: ...

class DecryptError(Exception): ...
class EncryptError(Exception): ...
class IdentityError(Exception): ...
class RecipientError(Exception): ...

def encrypt(
    plaintext: bytes,
    recipients: Sequence[x25519.Recipient | ssh.Recipient],
    armored: bool = False,
) -> bytes: ...
def decrypt(ciphertext: bytes, identities: Sequence[x25519.Identity | ssh.Identity]) -> bytes: ...
def encrypt_io(
    reader: _Reader,
    writer: _Writer,
    recipients: Sequence[x25519.Recipient | ssh.Recipient],
    armored: bool = False,
) -> None: ...
def decrypt_io(
    reader: _Reader,
    writer: _Writer,
    identities: Sequence[x25519.Identity | ssh.Identity],
) -> None: ...
