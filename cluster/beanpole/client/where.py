"""Locate the cluster for a command: the same options, variables and order for every command.

The order of precedence is: the addresses of `--addr`, the local cluster of `--dir`, the environment
variable, a local cluster in the current directory. No connection is made here. The environment
variables of all commands are named here, so that a node tells them from its settings.
"""

import argparse
import difflib
import json
import os
import re
import stat
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from beanpole.addresses import TLS_PREFIX, UNIX_PREFIX, listed
from beanpole.errors import ConfigurationError
from beanpole.protocol.beanstalk.requests import USER_TOKEN_PATTERN

# The file that `beanpole up` writes into its folder, and the default of that folder.
CLUSTER_FILE: Final = "cluster.json"
DIRECTORY_DEFAULT: Final = ".beanpole"
# From this similarity on (of 1) a variable counts as a typing error: BEANPOLE_ADDRESSES has 0.84;
# the most similar variable of a node's settings, BEANPOLE_DIAL, has 0.77.
LIKENESS: Final = 0.8
# The contents of pipes, by path, device and number. A shell's pipes have new numbers each time; a
# named pipe that is made again may have the same, and counts as the one before.
_read_once: dict[tuple[str, int, int], bytes] = {}
_reading: Final = threading.Lock()
_is_token: Final = re.compile(USER_TOKEN_PATTERN).fullmatch


class Port(NamedTuple):
    """A kind of port that nodes listen on.

    Attributes:
        key: its name in cluster.json.
        speaks: the name of the protocol.
        setting: the setting of a node that configures it.
        number: the default port number of the first node of a local cluster.
        variable: the environment variable for its addresses; empty if there is none.
    """

    key: str
    speaks: str
    setting: str
    number: int
    variable: str


BEANSTALK: Final = Port("beanstalk", "beanstalk", "listen", 11300, "BEANPOLE_ADDR")
GRPC: Final = Port("grpc", "gRPC", "grpc_listen", 11320, "BEANPOLE_GRPC_ADDR")
QLESS: Final = Port("qless", "qless", "listeners.qless", 6380, "")
# PEM files for TLS: the CA of the nodes' certificates, the client's certificate and its key.
TLS_CA: Final = "BEANPOLE_TLS_CA"
TLS_CERTIFICATE: Final = "BEANPOLE_TLS_CERTIFICATE"
TLS_KEY: Final = "BEANPOLE_TLS_KEY"
TLS_VARIABLES: Final[tuple[str, ...]] = (TLS_CA, TLS_CERTIFICATE, TLS_KEY)
# The token of the user as whom a command acts, or the file that has it. There is no option for it,
# because `ps` shows the options of a process to all users.
TOKEN: Final = "BEANPOLE_TOKEN"
TOKEN_FILE: Final = "BEANPOLE_TOKEN_FILE"
# Of a key that reads encrypted backups; an option would show it, too.
BACKUP_PASSPHRASE: Final = "BEANPOLE_BACKUP_PASSPHRASE"
# `beanpole work` sets these for the command of a job, which may start a node.
JOB: Final = "BEANPOLE_JOB"
QUEUE: Final = "BEANPOLE_QUEUE"
TRIED: Final = "BEANPOLE_TRIED"
VARIABLES: Final = frozenset(
    {
        *(BEANSTALK.variable, GRPC.variable, *TLS_VARIABLES),
        *(TOKEN, TOKEN_FILE, BACKUP_PASSPHRASE),
        *(JOB, QUEUE, TRIED),
    }
)


class Parser(Protocol):
    """A parser of argparse, or an argument group."""

    def add_argument(self, *names: str, **how: Any) -> argparse.Action: ...


def add_options(parser: Parser, port: Port, *names: str) -> None:
    """Add the options that `addresses` reads; `names` are older names of `--addr`."""
    add_addresses(parser, port, *names)
    add_directory(parser)


def add_addresses(parser: Parser, port: Port, *names: str) -> None:
    """Add the option `--addr` alone; `names` are older names of it."""
    variable = f", else {port.variable}" if port.variable else ""
    encrypted = f"; {TLS_PREFIX} before each for TLS" if port is not GRPC else ""
    parser.add_argument(
        "--addr",
        "--addresses",
        *names,
        dest="addr",
        metavar="HOST:PORT,...",
        help=f"{port.speaks} addresses of nodes, any of which may fail{encrypted} (default: the "
        f"cluster in --dir{variable}, else the one in ./{DIRECTORY_DEFAULT})",
    )


def add_directory(parser: Parser) -> None:
    """Add the option `--dir`, the folder of a local cluster."""
    parser.add_argument("--dir", type=folder, metavar="DIR", help="folder of a local cluster")


def folder(text: str) -> Path:
    """Parse the path of a folder; an empty one, of a variable that is not set, would be `.`."""
    if not text:
        raise argparse.ArgumentTypeError("'' is no directory; the current one is .")
    return Path(text)


def addresses(
    arguments: argparse.Namespace, port: Port, environment: Mapping[str, str] = os.environ
) -> list[str]:
    """Return the addresses to try, in order; store the data for hints in `arguments`.

    Raises:
        ConfigurationError: an address is not allowed, or `--dir` has no cluster; the message names
            the source.
    """
    found = _named(arguments, port, environment)
    arguments.assumed = "" if found is not None else _assumed(port, environment)
    found = [f"127.0.0.1:{port.number}"] if found is None else found
    arguments.asked = (port, found)
    return found


def _assumed(port: Port, environment: Mapping[str, str]) -> str:
    """Return the hint for a command that named no cluster: the ways to name one."""
    also = f" or {port.variable}" if port.variable else ""
    others = sorted(name for name in environment if name not in VARIABLES)
    near = difflib.get_close_matches(port.variable, others, n=1, cutoff=LIKENESS)
    unknown = f"; {near[0]} is no variable of Beanpole" if near else ""
    return (
        f"hint: no cluster was named, and none runs in ./{DIRECTORY_DEFAULT}, so this is the usual "
        f"address of a first node; --addr HOST:PORT, --dir DIR{also} names another{unknown}"
    )


def _named(
    arguments: argparse.Namespace, port: Port, environment: Mapping[str, str]
) -> list[str] | None:
    """Return the addresses of the first source that names any; None if no source does."""
    if arguments.addr is not None:
        return split(arguments.addr, "--addr", port)
    if arguments.dir is not None:
        nodes = local_nodes(arguments.dir)
        if not nodes:
            raise ConfigurationError(
                f"--dir {arguments.dir}: no cluster runs there, it has no {CLUSTER_FILE}; "
                f"`beanpole up --dir {arguments.dir}` starts one"
            )
        found = [str(node[port.key]) for node in nodes if port.key in node]
        if not found:
            raise ConfigurationError(
                f"--dir {arguments.dir}: an older release started that cluster, without ports for "
                f"{port.speaks}; stop it, and start it with `beanpole up` of this release"
            )
        return found
    if port.variable and environment.get(port.variable):
        return split(environment[port.variable], port.variable, port)
    nodes = local_nodes(Path(DIRECTORY_DEFAULT))
    return [str(node[port.key]) for node in nodes if port.key in node] or None


def token(environment: Mapping[str, str] = os.environ) -> str:
    """Return the token of the environment; empty if there is none.

    Raises:
        ConfigurationError: both variables are set, the file cannot be read or is empty, or the
            token is malformed.
    """
    found, path = environment.get(TOKEN, ""), environment.get(TOKEN_FILE, "")
    if found and path:
        raise ConfigurationError(f"{TOKEN} and {TOKEN_FILE}: give one of them")
    source = TOKEN
    if path:
        source = f"{TOKEN_FILE} = {path!r}"
        try:
            found = content(path).decode("ascii", errors="replace").strip()
        except OSError as error:
            raise ConfigurationError(f"{source} cannot be read: {error.strerror}") from error
        if not found:
            raise ConfigurationError(f"{source} is empty")
    if found and not (found.isascii() and found.isprintable() and " " not in found):
        raise ConfigurationError(f"{source} has no token: a token is printable, without spaces")
    # Nodes would take a longer one for a line or a header that is too long, and hang up.
    if found and not _is_token(found.encode()):
        raise ConfigurationError(
            f"{source} has no token: a token has 1 to 128 characters, and this has {len(found)}"
        )
    return found


def content(path: str) -> bytes:
    """Return the content of a file that a variable names; that of a pipe is kept for later calls.

    The files are read for each node. A regular one may have been renewed in the meantime; a pipe is
    empty after the first read, or a second one waits for ever.

    Raises:
        OSError: it cannot be read.
    """
    its = os.stat(path)
    if stat.S_ISREG(its.st_mode):
        return Path(path).read_bytes()
    with _reading:
        key = (path, its.st_dev, its.st_ino)
        if key not in _read_once:
            _read_once[key] = Path(path).read_bytes()
        return _read_once[key]


def split(text: str, source: str, port: Port) -> list[str]:
    """Parse HOST:PORT,...; for clients' ports also tls:HOST:PORT for all or none, or unix:PATH.

    Raises:
        ConfigurationError: see `addresses`.
    """
    parts = [part.strip() for part in text.split(",")]
    unix = " or unix:PATH" if port is BEANSTALK else ""
    tls = f" or {TLS_PREFIX}HOST:PORT" if port is not GRPC else ""
    refused = f"{source} = {text!r} is not allowed: "
    encrypted = sum(part.startswith(TLS_PREFIX) for part in parts)
    if tls and encrypted not in (0, len(parts)):
        # A client whose first node is down must not send its jobs unencrypted to the next one.
        raise ConfigurationError(f"{refused}all addresses must begin with {TLS_PREFIX}, or none")
    try:
        for part in parts:
            if unix and part == UNIX_PREFIX:
                raise ConfigurationError(f"{refused}{part!r} has no path of a socket")
            if not (unix and part.startswith(UNIX_PREFIX)):
                listed(part.removeprefix(TLS_PREFIX) if tls else part)
    except ValueError as error:
        raise ConfigurationError(f"{refused}it must be {error}{unix}{tls}") from None
    return list(dict.fromkeys(parts))


def local_nodes(directory: Path) -> list[dict[str, Any]]:
    """Return the nodes of DIR/cluster.json; an empty list if there is no such file.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    path = directory / CLUSTER_FILE
    try:
        found: list[dict[str, Any]] = json.loads(path.read_text())["nodes"]
        if not (isinstance(found, list) and all(isinstance(node, dict) for node in found)):
            raise ValueError("its nodes are no list of objects")
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"cannot read {path}: {error}") from error
    return found
