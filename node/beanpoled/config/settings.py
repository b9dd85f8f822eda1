"""Kinds of settings: the parsing of a value from text or TOML, and its allowed range.

The settings of a node, and their relations, are in `config.node`.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol
from zlib import crc32

from beanpole.addresses import TLS_PREFIX, UNIX_PREFIX, split_address

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

# sun_path of Linux holds 108 bytes including the final NUL.
UNIX_PATH_MAX_BYTES: Final = 107
# Raft's majorities gain nothing from more members, and every member adds cost.
MEMBERS_MAX: Final = 9
# Of `queue_bytes_max`: sixteen of the largest jobs by default.
QUEUE_BYTES_MIN: Final = MIB

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_SIZE: Final = re.compile(r"([0-9]+) ?(KiB|MiB|GiB)?")
_SUFFIXES: Final = {None: 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}


class Addresses(NamedTuple):
    """The addresses of a member: host:port of its peer link and of its gRPC server."""

    peer: str
    grpc: str


class Kind(Protocol):
    """Parses and checks one value. Every error is a ValueError that states what is allowed."""

    @property
    def allowed(self) -> str: ...

    def from_text(self, text: str) -> object:
        """Parse the value from an environment variable or a flag."""

    def check(self, value: object) -> object:
        """Check a value from TOML, or one that `from_text` has parsed."""


class Name:
    """A cluster's or node's name, as used in file headers, URLs and metrics."""

    allowed = "1 to 63 letters, digits, '_', '.' or '-', beginning with a letter or digit"

    def from_text(self, text: str) -> object:
        return self.check(text)

    def check(self, value: object) -> object:
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            raise ValueError(self.allowed)
        return value


class Choice:
    """One of a few words."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.allowed = " or ".join(f'"{word}"' for word in words)

    def from_text(self, text: str) -> object:
        return self.check(text)

    def check(self, value: object) -> object:
        if value not in self.words:
            raise ValueError(self.allowed)
        return value


class Integer:
    """A whole number within limits, both included."""

    def __init__(self, low: int, high: int) -> None:
        self.low = low
        self.high = high
        self.allowed = f"a whole number from {low} to {high}"

    def from_text(self, text: str) -> object:
        if not re.fullmatch(r"[0-9]{1,20}", text):
            raise ValueError(self.allowed)
        return self.check(int(text))

    def check(self, value: object) -> object:
        # In Python a bool is an int.
        if type(value) is not int or not self.low <= value <= self.high:
            raise ValueError(self.allowed)
        return value


class Size(Integer):
    """A number of bytes; text may end in KiB, MiB or GiB."""

    def __init__(self, low: int, high: int) -> None:
        super().__init__(low, high)
        self.allowed = (
            f'a number of bytes from {low} to {high}, or text like "64 MiB" (KiB, MiB or GiB)'
        )

    def from_text(self, text: str) -> object:
        match = _SIZE.fullmatch(text)
        if not match or len(match[1]) > 20:
            raise ValueError(self.allowed)
        return super().check(int(match[1]) * _SUFFIXES[match[2]])

    def check(self, value: object) -> object:
        return self.from_text(value) if isinstance(value, str) else super().check(value)


class Path:
    """A path of a file or folder."""

    allowed = "a path"

    def from_text(self, text: str) -> object:
        return self.check(text)

    def check(self, value: object) -> object:
        if not isinstance(value, str) or not value or "\0" in value:
            raise ValueError(self.allowed)
        return value


class OptionalPath(Path):
    """A path of a file, or empty text for none."""

    allowed = "a path, or nothing"

    def check(self, value: object) -> object:
        return "" if value == "" else super().check(value)


class Secret:
    """A secret; no message ever repeats it."""

    allowed = "text of 16 to 1024 characters in UTF-8, or nothing for no secret"

    def from_text(self, text: str) -> object:
        return self.check(text)

    def check(self, value: object) -> object:
        if not isinstance(value, str) or (value and not 16 <= len(value) <= 1024):
            raise ValueError(self.allowed)
        try:
            value.encode()
        except UnicodeEncodeError:
            # Other bytes of a variable or flag are surrogates here. The error would show the value.
            raise ValueError(self.allowed) from None
        return value


class Address:
    """host:port, or [host]:port for an IPv6 host."""

    def __init__(self, port_min: int = 1) -> None:
        self.port_min = port_min
        self.allowed = f"HOST:PORT with a port from {port_min} to 65535"

    def from_text(self, text: str) -> object:
        return self.check(text)

    def check(self, value: object) -> object:
        if not isinstance(value, str):
            raise ValueError(self.allowed)
        try:
            _, port = split_address(value)
        except ValueError:
            raise ValueError(self.allowed) from None
        if port < self.port_min:
            raise ValueError(self.allowed)
        return value


class Listen:
    """Client addresses: a list in TOML, separated by commas in text."""

    allowed = (
        "one or more of HOST:PORT with a port from 0 to 65535, or "
        f"unix:PATH (at most {UNIX_PATH_MAX_BYTES} bytes), or tls:HOST:PORT"
    )

    def from_text(self, text: str) -> object:
        return self.check([part.strip() for part in text.split(",")])

    def check(self, value: object) -> object:
        if isinstance(value, str):
            raise ValueError(self._as_list(value))
        if not isinstance(value, list) or not value:
            raise ValueError(self.allowed)
        checked: list[str] = []
        for item in value:
            if isinstance(item, str) and item.startswith(UNIX_PREFIX):
                if (
                    not 0 < len(item[len(UNIX_PREFIX) :].encode()) <= UNIX_PATH_MAX_BYTES
                    or "\0" in item
                ):
                    raise ValueError(self.allowed)
                checked.append(item)
                continue
            is_tls = isinstance(item, str) and item.startswith(TLS_PREFIX)
            prefix = TLS_PREFIX if is_tls else ""
            place = item.removeprefix(TLS_PREFIX) if isinstance(item, str) else item
            try:
                checked.append(f"{prefix}{Address(port_min=0).check(place)}")
            except ValueError:
                raise ValueError(self.allowed) from None
        if len(set(checked)) != len(checked):
            raise ValueError(self.allowed + ", each once")
        return tuple(checked)

    def _as_list(self, value: str) -> str:
        """Say what to write in TOML in place of a string, which may lack its brackets only."""
        items = [part.strip() for part in value.split(",")]
        try:
            self.check(items)
        except ValueError:
            items = ["127.0.0.1:11300"]
        return f"{self.allowed}, as a list: {json.dumps(items)}"


# Said where an empty list is given.
NOT_OFF: Final = (
    "; no protocol can be switched off: a unix:PATH in a directory that only the node may enter "
    "keeps clients away, and without the entry the protocol has its default address"
)


class Listeners:
    """A table of protocols and their client addresses; in text NAME=ADDRESS, repeated for more."""

    allowed = (
        "a table [listeners] in which NAME is a list of HOST:PORT, tls:HOST:PORT or unix:PATH, "
        "as text NAME=ADDRESS,NAME=ADDRESS"
    )

    def from_text(self, text: str) -> object:
        table: dict[str, list[str]] = {}
        for part in text.split(",") if text else ():
            name, equals, address = part.strip().partition("=")
            if not equals:
                raise ValueError(self.allowed)
            table.setdefault(name, []).append(address)
        return self.check(table)

    def check(self, value: object) -> object:
        if not isinstance(value, Mapping):
            raise ValueError(self.allowed)
        checked: dict[str, object] = {}
        for name, addresses in value.items():
            try:
                checked[str(name)] = Listen().check(addresses)
            except ValueError as error:
                off = "" if addresses not in ([], [""]) else NOT_OFF
                raise ValueError(f"{self.allowed}; {name} must be {error}{off}") from None
        return checked


class Members:
    """A table of ids and addresses; in text: ID=PEER/GRPC, separated by commas."""

    allowed = (
        f'1 to {MEMBERS_MAX} entries, each [members.ID] with peer = "HOST:PORT" and '
        'grpc = "HOST:PORT", as text ID=PEER/GRPC,ID=PEER/GRPC'
    )

    def from_text(self, text: str) -> object:
        return self.check(table_from_text(text, self.allowed))

    def check(self, value: object) -> object:
        found = addresses_table(value, self.allowed, complete=True)
        if not 0 < len(found) <= MEMBERS_MAX:
            raise ValueError(self.allowed)
        if same := alike(found):
            raise ValueError(f"{self.allowed}; {same}")
        return {name: Addresses(entry["peer"], entry["grpc"]) for name, entry in found.items()}


class Dial:
    """Addresses to dial in place of the members' own: peer, grpc or both for any of the ids."""

    allowed = (
        'entries [dial.ID] with peer = "HOST:PORT" or grpc = "HOST:PORT" or both, '
        "as text ID=PEER/GRPC,ID=PEER/GRPC where PEER or GRPC may be empty"
    )

    def from_text(self, text: str) -> object:
        return self.check(table_from_text(text, self.allowed) if text else {})

    def check(self, value: object) -> object:
        return addresses_table(value, self.allowed, complete=False)


def alike(names: Iterable[str]) -> str:
    """Name two members that Raft cannot tell apart; empty if there are none.

    It distinguishes them by the CRC-32 of their names (`replication/pysyncobj/library.Member`).
    """
    numbers: dict[int, str] = {}
    for name in names:
        other = numbers.setdefault(crc32(name.encode()), name)
        if other != name:
            return f"{other} and {name} have the same CRC-32: rename one"
    return ""


def table_from_text(text: str, allowed: str) -> dict[str, dict[str, str]]:
    """Parse ID=PEER/GRPC,... into a table like that of TOML."""
    table: dict[str, dict[str, str]] = {}
    for part in text.split(","):
        name, equals, both = part.strip().partition("=")
        peer, slash, grpc = both.partition("/")
        if not equals or not slash:
            raise ValueError(f"{allowed}; {part.strip()!r} is no such entry")
        if name in table:
            raise ValueError(f"{allowed}; {name!r} is there twice")
        table[name] = {key: at for key, at in (("peer", peer), ("grpc", grpc)) if at}
    return table


def addresses_table(value: object, allowed: str, complete: bool) -> dict[str, dict[str, str]]:
    """Check a table of id -> {peer, grpc}; `complete`: whether both are required."""
    if not isinstance(value, Mapping):
        raise ValueError(allowed)
    address = Address()
    checked: dict[str, dict[str, str]] = {}
    for name, entry in value.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"{allowed}; an ID is {Name.allowed}")
        if not isinstance(entry, Mapping) or not entry:
            raise ValueError(f"{allowed}; {name} is no such table")
        for key in entry:
            if key not in Addresses._fields:
                raise ValueError(f"{allowed}; {name} has the unknown key {key!r}")
        missing = [key for key in Addresses._fields if key not in entry]
        if complete and missing:
            raise ValueError(f"{allowed}; {name} has no {missing[0]}")
        checked[name] = {}
        for key, item in entry.items():
            try:
                checked[name][key] = str(address.check(item))
            except ValueError as error:
                words = f"{key} = {item!r} of {name} is not {error}"
                raise ValueError(f"{allowed}; {words}") from None
    return checked


class Setting(NamedTuple):
    """One key of the configuration; without a `default` (None) it is required."""

    name: str
    kind: Kind
    default: object
    words: str
