"""Keys of encrypted backups: recipients and identities in the text and file formats of `age`.

This module reads keys with the library that does the cryptography (pyrage, an optional extra of
this package). Its errors never show a secret. Streams are in `age_streams`.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from beanpole.errors import ConfigurationError
from beanpoled.trust.secret_file import oddities

if TYPE_CHECKING:
    import pyrage

    Recipient: TypeAlias = pyrage.x25519.Recipient | pyrage.ssh.Recipient
    Identity: TypeAlias = pyrage.x25519.Identity | pyrage.ssh.Identity

# Each recipient adds 100 to 800 bytes to a file's header, and a public-key operation to each
# backup.
RECIPIENTS_MAX: Final = 64
# A file of recipients or identities has a line of 60 to 800 bytes for each, and comments.
KEY_FILE_BYTES_MAX: Final = 64 * 1024
MAGIC: Final = b"age-encryption.org/v1\n"
ARMOR: Final = b"-----BEGIN AGE ENCRYPTED FILE-----"
# The header of a file that only a passphrase opens.
SCRYPT: Final = MAGIC + b"-> scrypt "
_SSH_PRIVATE: Final = (b"-----BEGIN OPENSSH PRIVATE KEY-----", b"-----BEGIN RSA PRIVATE KEY-----")
_X25519_PREFIX: Final = "age1"
_SSH_PREFIXES: Final = ("ssh-ed25519 ", "ssh-rsa ")
_SECRET_PREFIX: Final = "AGE-SECRET-KEY-"
_NO_PASSPHRASE: Final = "--passphrase-file FILE names its passphrase"


def library() -> Any:
    """Return the module that encrypts.

    Raises:
        ConfigurationError: it is not installed; the message says how to install it.
    """
    try:
        import pyrage
    except ImportError as error:
        raise ConfigurationError(
            "encrypted backups need the package pyrage, which is not installed here "
            f"({error}): pip install 'BEANPOLE.whl[backup]'"
        ) from None
    return pyrage


def recipients(texts: Sequence[str], files: Sequence[str]) -> "list[Recipient]":
    """Return the keys to which a backup is encrypted; empty without texts and files.

    Args:
        texts: public keys, `age1...` or `ssh-ed25519 ...` or `ssh-rsa ...`.
        files: files with one key on each line; empty lines and lines that begin with # are ignored.

    Raises:
        ConfigurationError: a text is no such key, or there are more than RECIPIENTS_MAX.
    """
    if not texts and not files:
        return []
    found = [_recipient(text.strip(), "--encrypt-to") for text in texts]
    for path in files:
        source = f"--recipients-file {path}"
        data = _contents(source, path)
        before = len(found)
        for where, line in _lines(source, data):
            found.append(_recipient(line, where))
        if len(found) == before:
            raise ConfigurationError(f"{source}: there is no recipient in it")
    if len(found) > RECIPIENTS_MAX:
        raise ConfigurationError(
            f"{len(found)} recipients are not allowed: at most {RECIPIENTS_MAX}"
        )
    return found


def identities(
    files: Sequence[str], passphrase: str, missing: str = _NO_PASSPHRASE
) -> "list[Identity]":
    """Return the keys that decrypt backups.

    Args:
        files: identity files as `age-keygen` writes them, plain or encrypted with a passphrase
            (`age -p`), or private keys of SSH without a passphrase.
        passphrase: for the encrypted files; empty if there is none.
        missing: the words for an encrypted file if there is none.

    Raises:
        ConfigurationError: a file cannot be read, or holds no identity. The message shows no key.
    """
    found: list[Identity] = []
    for path in files:
        source = f"--identity {path}"
        data = _contents(source, path)
        if data.startswith((MAGIC, ARMOR)):
            if not passphrase:
                raise ConfigurationError(f"{source} is encrypted: {missing}")
            data = _opened(source, data, passphrase)
        found += _identities(source, data)
    return found


def check_pair(to: "list[Recipient]", by: "list[Identity]") -> None:
    """Check that a backup for these recipients can be decrypted with these identities.

    Raises:
        ConfigurationError: it cannot.
    """
    pyrage = library()
    try:
        pyrage.decrypt(pyrage.encrypt(b"", to), by)
    except pyrage.DecryptError:
        raise ConfigurationError("no --identity is one of the recipients") from None


def _identities(source: str, data: bytes) -> "Iterator[Identity]":
    pyrage = library()
    if data.startswith(_SSH_PRIVATE):
        try:
            yield pyrage.ssh.Identity.from_buffer(data)
        except pyrage.IdentityError as error:
            raise ConfigurationError(f"{source} is not allowed: {error}") from None
        return
    count = 0
    for where, line in _lines(source, data):
        try:
            yield pyrage.x25519.Identity.from_str(line)
        except pyrage.IdentityError:
            raise ConfigurationError(
                f"{where} is no identity: it must be {_SECRET_PREFIX}1..., or the file a private "
                "key of SSH"
            ) from None
        count += 1
    if not count:
        raise ConfigurationError(f"{source}: there is no identity in it")


def _opened(source: str, data: bytes, passphrase: str) -> bytes:
    pyrage = library()
    try:
        opened: bytes = pyrage.passphrase.decrypt(data, passphrase)
    except pyrage.DecryptError as error:
        words = f"{source}: the passphrase does not open it: {error}"
        if odd := oddities(passphrase):
            words += f"; the passphrase {odd}, which is part of it"
        raise ConfigurationError(words) from None
    return opened


def _recipient(text: str, where: str) -> "Recipient":
    pyrage = library()
    if text.upper().startswith(_SECRET_PREFIX):
        raise ConfigurationError(
            f"{where} has an identity, which is secret; a recipient is its public key, age1..."
        )
    kinds = [
        (pyrage.x25519, (_X25519_PREFIX,)),
        (pyrage.ssh, _SSH_PREFIXES),
    ]
    for kind, prefixes in kinds:
        if text.startswith(prefixes):
            try:
                found: Recipient = kind.Recipient.from_str(text)
            except pyrage.RecipientError as error:
                raise ConfigurationError(f"{where} {text!r} is not allowed: {error}") from None
            return found
    raise ConfigurationError(
        f"{where} {text!r} is no recipient: it must be age1..., ssh-ed25519 ... or ssh-rsa ..."
    )


def _contents(source: str, path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            data = stream.read(KEY_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"{source} cannot be read: {error.strerror}") from None
    if len(data) > KEY_FILE_BYTES_MAX:
        raise ConfigurationError(f"{source} has more than {KEY_FILE_BYTES_MAX} bytes")
    return data


def _lines(source: str, data: bytes) -> Iterator[tuple[str, str]]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ConfigurationError(f"{source}: it is no text in UTF-8") from None
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if line and not line.startswith("#"):
            yield f"{source}: line {number}", line
