"""Read the configuration's file as TOML. The settings in it are checked in `node`."""

import tomllib

from beanpole.errors import ConfigurationError
from beanpoled.trust.regular_files import read_regular


def read(path: str, is_again: bool) -> dict[str, object]:
    """Return the values of a TOML file by their names.

    Args:
        path: of the file.
        is_again: whether a running node reads it again. A pipe is allowed for a start
            (`--config <(...)`), but nothing more comes from it, and a node must not wait for that.

    Raises:
        ConfigurationError: it cannot be read, or is no TOML.
    """
    try:
        found: dict[str, object] = tomllib.loads(_bytes(path, is_again).decode())
    except OSError as error:
        again = " again" if is_again else ""
        raise ConfigurationError(f"cannot read {path}{again}: {error.strerror}") from error
    except ValueError as error:  # also text that is not UTF-8, and numbers of too many digits
        raise ConfigurationError(f"{path} is no TOML: {error}") from error
    except RecursionError as error:
        raise ConfigurationError(f"{path}: its values are nested too deeply") from error
    return found


def _bytes(path: str, is_again: bool) -> bytes:
    if is_again:
        return read_regular(path)[0]
    with open(path, "rb") as file:
        return file.read()
