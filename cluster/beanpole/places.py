"""Resolve names of local and remote directories to Arrow file systems.

The names are those that Spark accepts: a path, `file:`, `s3a:`, `gs:`, `hdfs:`. Arrow, which
implements the file systems, is imported late because a node never needs it.
"""

import os
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from beanpole.errors import ConfigurationError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

# Hadoop's schemes for S3, and Arrow's.
_ARROW_SCHEMES: Final = {"s3a": "s3", "s3n": "s3"}
_HADOOP_SCHEMES: Final = ("hdfs", "viewfs")
SCHEMES: Final = ("file", "gs", "hdfs", "s3", "s3a", "s3n", "viewfs")
# How often a request to S3 is made that gets no answer, or an answer that may change. One that gets
# none lasts ten seconds at most, so a call that hangs ends within half a minute; Arrow's own bound
# for a URI, 31 attempts, is one of nearly five minutes.
S3_ATTEMPTS: Final = 3
# How long such a request may be silent before it has failed.
S3_SILENT_MAX_S: Final = 3.0
# Options of a URI that Arrow's class has no arguments for: it takes them from a URI only.
_S3_URI_OPTIONS: Final = ("smart_defaults", "tls_ca_dir_path", "tls_verify_certificates")
# The same bound for Google's store, whose own is a quarter of an hour.
GS_RETRY_LIMIT_S: Final = 30
_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?(.*)", re.DOTALL)


class Place(NamedTuple):
    """A directory."""

    files: "FileSystem"
    # Its path in the file system, without a trailing slash.
    path: str
    # Its name for messages, without keys and options.
    name: str
    # Whether it is in this machine's file system, which supports renames and locks.
    is_local: bool

    def at(self, name: str) -> str:
        """Return the path of a file of this directory in the file system."""
        return f"{self.path}/{name}"


def resolved(name: str) -> Place:
    """Return the place that a path or URI names. It is not read and need not exist.

    Raises:
        ConfigurationError: it is empty, its scheme is not supported, or its file system cannot be
            reached.
    """
    from pyarrow.fs import FileSystem, LocalFileSystem

    path = local_path(name)
    if path is not None:
        return Place(LocalFileSystem(), path, path, is_local=True)
    match = _URI.fullmatch(name)
    assert match is not None, "any other name is that of a local path"
    scheme = match[1].lower()
    scheme = _ARROW_SCHEMES.get(scheme, scheme)
    if scheme not in SCHEMES:
        raise ConfigurationError(
            f"{shown(name)} is not allowed: it must be a path or a URI that begins with "
            f"{', '.join(f'{one}:' for one in SCHEMES)}"
        )
    # In Hadoop's schemes an empty host means the default cluster: hdfs:/x and hdfs:///x.
    rest = match[3] if scheme in _HADOOP_SCHEMES else match[3].lstrip("/")
    uri = f"{scheme}://{rest}"
    try:
        files, path = FileSystem.from_uri(_bounded_uri(scheme, uri))
        if scheme == "s3":
            files = _bounded(files, uri)
    except (OSError, ValueError, ImportError) as error:
        # Arrow's messages repeat the URI, with its keys.
        reason = str(error).replace(uri, shown(name)).partition("\n")[0]
        raise ConfigurationError(f"{shown(name)} cannot be reached: {reason}") from None
    path = path.rstrip("/")
    if not path:
        what = "directory" if scheme in _HADOOP_SCHEMES else "bucket"
        raise ConfigurationError(f"{shown(name)} is not allowed: it names no {what}")
    return Place(files, path, shown(name), is_local=False)


def _bounded_uri(scheme: str, uri: str) -> str:
    """Return a URI of Google's store that limits how long a call is retried; others as they are."""
    if scheme != "gs" or "retry_limit_seconds=" in uri:
        return uri
    return f"{uri}{'&' if '?' in uri else '?'}retry_limit_seconds={GS_RETRY_LIMIT_S}"


def _bounded(files: "FileSystem", uri: str) -> "FileSystem":
    """Return the same S3 with bounds, and with small objects that are written by one request.

    Arrow writes others by several requests. If the last is not made, the store keeps an unfinished
    upload.
    """
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    options = uri.partition("?")[2]
    if any(f"{name}=" in options for name in _S3_URI_OPTIONS):
        return files
    # The arguments with which pickle makes it again.
    known = files.__reduce__()[1][0]
    bounds = {
        "retry_strategy": AwsStandardS3RetryStrategy(max_attempts=S3_ATTEMPTS),
        "request_timeout": S3_SILENT_MAX_S,
        "allow_delayed_open": True,
    }
    return S3FileSystem(**{**known, **bounds})


def below(name: str, folder: str) -> str:
    """Return the name of a folder of a directory, before the options after "?" of a URI."""
    is_local = local_path(name) is not None
    bare, mark, options = (name, "", "") if is_local else name.partition("?")
    return f"{bare.rstrip('/')}/{folder}{mark}{options}"


def local_path(name: str) -> str | None:
    """Return the absolute path of a directory of this machine; None for any other URI.

    Raises:
        ConfigurationError: it is empty, or a URI of another machine's file.
    """
    if not name:
        raise ConfigurationError("'' is no directory; the current one is .")
    match = _URI.fullmatch(name)
    if match is None:
        return os.path.abspath(name)
    scheme = match[1].lower()
    if scheme not in SCHEMES and match[2] is None:
        return os.path.abspath(name)  # a path with a colon in it
    if scheme != "file":
        return None
    rest = match[3]
    # Accepts file:///x and file:/x; a host, as in file://host/x, would mean another machine.
    if match[2] and not rest.startswith("/"):
        rest = rest.removeprefix("localhost")
    if not rest.startswith("/"):
        raise ConfigurationError(f"{name} is not allowed: it must be file:/PATH or file:///PATH")
    return os.path.abspath(rest)


def shown(name: str) -> str:
    """Return a name without secrets: keys before "@" and options after "?"."""
    match = _URI.fullmatch(name)
    if match is None or match[1].lower() == "file":
        return name
    rest = match[3]
    first = rest.lstrip("/").partition("/")[0]
    if ":" in first or "@" in first:
        # A key may have "/" or "?" in it, although it should be %2F or %3F: it ends at the last
        # "@". If that is in an option, nothing of the next option is shown.
        rest = rest.rpartition("@")[2].partition("&")[0]
    return f"{match[1]}:{match[2] or ''}{rest.partition('?')[0]}".rstrip("/")
