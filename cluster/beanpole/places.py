"""Names of directories, wherever they are, as file systems of Arrow.

Users give the names that Spark takes: a path, `file:`, `s3a:`, `gs:`, `hdfs:`. Arrow, which has the
file systems, is imported late: a node never needs them.
"""

import os
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from beanpole.errors import ConfigurationError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

# What Hadoop calls what Arrow knows by one name.
_ARROW_SCHEMES: Final = {"s3a": "s3", "s3n": "s3"}
_HADOOP_SCHEMES: Final = ("hdfs", "viewfs")
SCHEMES: Final = ("file", "gs", "hdfs", "s3", "s3a", "s3n", "viewfs")
_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?(.*)", re.DOTALL)


class Place(NamedTuple):
    """A directory."""

    files: "FileSystem"
    # What the file system calls it; ends with no slash.
    path: str
    # For people: without keys and options.
    name: str
    # Whether it is of this machine's file system, which renames and locks.
    is_local: bool

    def at(self, name: str) -> str:
        """Return what the file system calls a file of the directory."""
        return f"{self.path}/{name}"


def resolved(name: str) -> Place:
    """Return the place that a path or URI means. Nothing is read; nothing needs to be there.

    Raises:
        ConfigurationError: it is of a kind that is not known, or cannot be reached.
    """
    from pyarrow.fs import FileSystem, LocalFileSystem

    match = _URI.fullmatch(name)
    scheme = match[1].lower() if match is not None else "file"
    if scheme not in SCHEMES and match is not None and match[2] is None:
        match = None  # a path with a colon in it
    if match is None or scheme == "file":
        path = _local_path(name, match)
        return Place(LocalFileSystem(), path, path, is_local=True)
    scheme = _ARROW_SCHEMES.get(scheme, scheme)
    if scheme not in SCHEMES:
        raise ConfigurationError(
            f"{shown(name)} is not allowed: it must be a path or a URI that begins with "
            f"{', '.join(f'{one}:' for one in SCHEMES)}"
        )
    # Of Hadoop's the default cluster is the one without a name: hdfs:/x and hdfs:///x.
    rest = match[3] if scheme in _HADOOP_SCHEMES else match[3].lstrip("/")
    try:
        files, path = FileSystem.from_uri(f"{scheme}://{rest}")
    except (OSError, ValueError, ImportError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigurationError(f"{shown(name)} cannot be reached: {reason}") from None
    path = path.rstrip("/")
    if not path:
        raise ConfigurationError(f"{shown(name)} is not allowed: it names no directory")
    return Place(files, path, shown(name), is_local=False)


def _local_path(name: str, match: "re.Match[str] | None") -> str:
    if match is None:
        return os.path.abspath(name)
    rest = match[3]
    # file:///x and file:/x; a host, as in file://host/x, would be another machine.
    if match[2] and not rest.startswith("/"):
        rest = rest.removeprefix("localhost")
    if not rest.startswith("/"):
        raise ConfigurationError(f"{name} is not allowed: it must be file:/PATH or file:///PATH")
    return os.path.abspath(rest)


def shown(name: str) -> str:
    """Return a name without what nobody else should read: keys before @, options behind ?."""
    match = _URI.fullmatch(name)
    if match is None or match[1].lower() == "file":
        return name
    bare = match[3].partition("?")[0]
    host, slash, path = bare.partition("/")
    return f"{match[1]}:{match[2] or ''}{host.rpartition('@')[2]}{slash}{path}".rstrip("/")
