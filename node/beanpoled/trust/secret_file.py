"""Read a secret from a file that only its node may read, and tell what is odd about a secret.

No secret is stored, compared or shown here.
"""

import stat
from typing import Final

from beanpole.errors import ConfigurationError
from beanpoled.trust.regular_files import read_regular

# A secret has at most 1,024 characters of at most 4 bytes each, and a line end.
SECRET_FILE_BYTES_MAX: Final = 4 * 1024 + 2
_BYTE_ORDER_MARK: Final = "\ufeff"
_LINE_ENDS: Final = "\r\n"


def read_secret(setting: str, path: str) -> str:
    """Return the text of a file without its final line end.

    Raises:
        ConfigurationError: the file cannot be read, is too long or no text, or other users may read
            or write it. The group may read it, because secrets that Kubernetes mounts are
            group-readable.
    """
    what = f"{setting} = {path!r}"
    try:
        data, found = read_regular(path, SECRET_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"{what} cannot be read: {error.strerror}") from error
    wrong = found.st_mode & (stat.S_IRWXO | stat.S_IWGRP)
    if wrong:
        raise ConfigurationError(
            f"{what} is not allowed: its permissions are {stat.S_IMODE(found.st_mode):04o}, and "
            f"others must not read or write it; chmod 600 {path}"
        )
    if len(data) > SECRET_FILE_BYTES_MAX:
        raise ConfigurationError(
            f"{what} is not allowed: it has more than {SECRET_FILE_BYTES_MAX} bytes"
        )
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{what} is not allowed: it is no text in UTF-8") from None


def oddities(secret: str) -> str:
    """Return what is probably no intended part of a secret, in words that follow its source.

    Editors, and commands that write files, add such characters without a sign. They count, so that
    other nodes, or a passphrase that is typed, differ.

    Args:
        secret: without its final line end.

    Returns:
        The words; empty if nothing is odd. They show no part of the secret.
    """
    text = secret.removeprefix(_BYTE_ORDER_MARK)
    if text and text.isspace():
        return "has only blanks"
    body = text.strip(_LINE_ENDS)
    ends_line = text.endswith(tuple(_LINE_ENDS))
    found = {
        "begins with a byte order mark": text != secret,
        "begins with a blank": text[:1].isspace(),
        "ends with a blank": body[-1:].isspace() and not ends_line,
        "has a line end at its end": ends_line,
        "has more than one line": any(end in body for end in _LINE_ENDS),
        "has a control character": any(one < " " and not one.isspace() for one in text),
    }
    return " and ".join(words for words, is_so in found.items() if is_so)


def warning(secret: str, path: str) -> str:
    """Return the warning about the shared secret of nodes; empty if nothing is odd.

    Args:
        secret: that is used.
        path: of the file that it was read from; empty if it is in the configuration itself.
    """
    words = oddities(secret)
    source = f"peer_secret_file = {path!r}" if path else "peer_secret"
    return f"{source} {words}, which is part of the secret" if words else ""
