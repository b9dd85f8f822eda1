"""The files of `beanpole up`: the folder of a local cluster, its ports and its configuration.

    DIR/cluster.json     all nodes and their addresses, once every node serves
    DIR/lock             held while `up` runs
    DIR/nX/node.toml     the node's configuration; `up` writes it anew each time
    DIR/nX/cmdline       the command that starts the node, quoted for a shell
    DIR/nX/log           what the node printed
    DIR/nX/data          the node's log and snapshots

Other programs rely on the names, the ports and the format of cluster.json. This file does not start
or inspect processes.
"""

import fcntl
import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

from beanpole.client.where import CLUSTER_FILE
from beanpole.errors import ConfigurationError
from beanpole.numbers import whole_within
from beanpoled import checking
from beanpoled.cli.values import NUMBER_MAX
from beanpoled.config.protocols import FIRST, PROTOCOLS, Protocol

CLUSTER: Final = "dev"
HOST: Final = "127.0.0.1"
BASE_PORT_DEFAULT: Final = 11300
# Ten ports are reserved for each kind of listener.
NODES_MAX: Final = 9
# The last kind of port begins at base + 60.
BASE_PORT_MAX: Final = 65535 - 69
# Settings that `write` sets itself.
OWN_SETTINGS: Final = frozenset(
    {
        "cluster",
        "node_id",
        "data_dir",
        "listen",
        "listeners",
        "peer_listen",
        "grpc_listen",
        "http_listen",
        "members",
        "dial",
    }
)
# Listeners other than client protocols, as offsets from the base port. Those of protocols are in
# their rows: beanstalk has 0, Workq 40 and Gearman 50; 60 is reserved for qless.
PORTS: Final = {"peer": 10, "grpc": 20, "http": 30}


class LocalNode(NamedTuple):
    """One node of a local cluster."""

    id: str
    directory: Path
    addresses: Mapping[str, str]
    # A copy of the program to run instead of this one.
    tree: Path | None = None

    @property
    def config_path(self) -> Path:
        return self.directory / "node.toml"

    @property
    def command(self) -> list[str]:
        """The command that starts this node, from any folder."""
        prefix = []
        if self.tree is not None:
            others = os.environ.get("PYTHONPATH")
            paths = [str(self.tree), *([others] if others else [])]
            prefix = ["env", f"PYTHONPATH={os.pathsep.join(paths)}"]
        return [*prefix, sys.executable, "-m", "beanpoled", "--config", str(self.config_path)]


def plan(
    directory: Path, nodes: int, base_port: int, protocols: Iterable[Protocol] = PROTOCOLS
) -> list[LocalNode]:
    """Return the nodes of a local cluster."""
    offsets = {**{protocol.name: protocol.port_offset for protocol in protocols}, **PORTS}
    return [
        LocalNode(
            f"n{number}",
            directory / f"n{number}",
            {kind: f"{HOST}:{base_port + offset + number}" for kind, offset in offsets.items()},
        )
        for number in range(nodes)
    ]


def lock(directory: Path) -> TextIO:
    """Lock the folder for this process, until the returned file is closed.

    Raises:
        ConfigurationError: another `beanpole up` has it, or it cannot be created.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = (directory / "lock").open("w")
    except OSError as error:
        raise ConfigurationError(f"--dir {directory}: {error.strerror}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise ConfigurationError(
            f"another `beanpole up` runs in {directory}; stop it, or choose another --dir"
        ) from None
    return file


def check_nodes(directory: Path, nodes: int) -> None:
    """Refuse a folder with the jobs of a cluster of another size."""
    there = sorted(
        path.parent.name
        # Not by its node.toml: a refused start leaves one, but no jobs.
        for path in directory.glob("n*/data")
        if re.fullmatch(r"n[0-9]+", path.parent.name)
    )
    if there and len(there) != nodes:
        raise ConfigurationError(
            f"{directory} holds a cluster of {len(there)} nodes ({', '.join(there)}), not of "
            f"{nodes}: give --nodes {len(there)}, or choose another --dir"
        )


def check_ports(nodes: Iterable[LocalNode]) -> None:
    """Refuse ports that another program uses, all of them in one message."""
    taken = []
    for node in nodes:
        for kind, address in node.addresses.items():
            if checking.refusal(address) is not None:
                taken.append(f"{address} ({kind} of {node.id})")
    if taken:
        raise ConfigurationError(
            f"in use by another program: {', '.join(taken)}; choose another --base-port"
        )


def write(nodes: list[LocalNode], settings: Mapping[str, str]) -> None:
    """Write each node's configuration and command line."""
    members = {
        node.id: {"peer": node.addresses["peer"], "grpc": node.addresses["grpc"]} for node in nodes
    }
    for node in nodes:
        clients = {kind: at for kind, at in node.addresses.items() if kind not in PORTS}
        listen = clients.pop(FIRST)
        values: dict[str, Any] = {
            "cluster": CLUSTER,
            "node_id": node.id,
            "data_dir": str(node.directory / "data"),
            "listen": [listen],
            "peer_listen": node.addresses["peer"],
            "grpc_listen": node.addresses["grpc"],
            "http_listen": node.addresses["http"],
            **{name: _number_or_text(text) for name, text in settings.items()},
            "members": members,
            "listeners": {protocol: [at] for protocol, at in clients.items()},
        }
        node.directory.mkdir(parents=True, exist_ok=True)
        head = "# Written by `beanpole up` each time it starts.\n"
        # A setting may be a secret.
        replace(node.config_path, head + toml(values), 0o600)
        replace(node.directory / "cmdline", shlex.join(node.command) + "\n")


def _number_or_text(text: str) -> int | str:
    # A longer one is no value of any setting, and as a text it is refused by the setting's name.
    found = whole_within(text, 0, NUMBER_MAX)
    return text if found is None else found


def toml(values: Mapping[str, Any]) -> str:
    """Write strings, numbers, lists of strings, and tables of lists or of tables, as TOML."""
    lines = []
    tables = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            tables += _table(name, value)
        elif isinstance(value, list):
            lines.append(f"{name} = {_list(value)}")
        else:
            lines.append(f"{name} = {value if isinstance(value, int) else _text(value)}")
    return "\n".join([*lines, *tables]) + "\n"


def _table(name: str, table: Mapping[str, Any]) -> list[str]:
    """Return the lines of a table of lists, or of tables of strings."""
    lists = {key: entry for key, entry in table.items() if isinstance(entry, list)}
    lines = [f"\n[{name}]"] if lists else []
    lines += [f"{_text(key)} = {_list(entry)}" for key, entry in lists.items()]
    for key, entry in table.items():
        if key not in lists:
            lines.append(f"\n[{name}.{_text(key)}]")
            lines += [f"{field} = {_text(text)}" for field, text in entry.items()]
    return lines


def _list(values: Iterable[str]) -> str:
    return f"[{', '.join(map(_text, values))}]"


def _text(value: str) -> str:
    # JSON's strings are TOML's basic strings, except for this one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def write_cluster(directory: Path, nodes: Iterable[LocalNode], pids: Mapping[str, int]) -> None:
    """Publish the addresses of the nodes for other programs."""
    listed = [
        {"id": node.id, "pid": pids[node.id], "dir": str(node.directory), **node.addresses}
        for node in nodes
    ]
    replace(
        directory / CLUSTER_FILE,
        json.dumps({"cluster": CLUSTER, "nodes": listed}, indent=2) + "\n",
    )


def remove_cluster(directory: Path) -> None:
    """Remove cluster.json: no node serves there."""
    (directory / CLUSTER_FILE).unlink(missing_ok=True)


def replace(path: Path, text: str, mode: int = 0o666) -> None:
    """Write a file so that a reader sees the old or the new one, never a part.

    Args:
        path: of the file.
        text: what it has.
        mode: its permissions, whatever those of the old one; the umask is subtracted.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)  # a killed process with this id left it, with any mode
    try:
        with open(temporary, "x", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(text)
        temporary.replace(path)
    except (OSError, UnicodeEncodeError):
        temporary.unlink(missing_ok=True)
        raise
