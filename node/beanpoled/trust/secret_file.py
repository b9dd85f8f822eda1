"""Read a secret from a file that only its node may read. No secret is stored or compared here."""

import stat
from typing import Final

from beanpole.errors import ConfigurationError
from beanpoled.trust.regular_files import read_regular

# A secret has at most 1,024 characters of at most 4 bytes each, and a line end.
SECRET_FILE_BYTES_MAX: Final = 4 * 1024 + 2


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
