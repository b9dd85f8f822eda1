"""`beanpole certs dev`: make a certificate authority and certificates for development, by openssl.

In production, use certificates of the company's own authority. The requirements of nodes are in
docs/security.md.
"""

import argparse
import ipaddress
import os
import re
import secrets
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from beanpole.client.where import folder
from beanpole.errors import ConfigurationError

DAYS_DEFAULT: Final = 365
# In every certificate: `beanpole up` and local clients dial these.
_LOCAL: Final = ("localhost", "127.0.0.1")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_CLIENT: Final = "client"
# A serial number has at most 20 bytes, of a positive number (RFC 5280, 4.1.2.2).
_SERIAL_BITS: Final = 159
# Nodes may not have these names: their files would overwrite another certificate, or the CA itself.
_TAKEN: Final = {_CLIENT: "the clients' certificate", "ca": "the CA"}


def add_command(commands: Any) -> None:
    """Add `certs` to the parser."""
    parser = commands.add_parser("certs", help="make certificates for development")
    ways = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    way = ways.add_parser(
        "dev",
        help="make a CA, a certificate for each node, and one for clients",
        description="Writes ca.pem, and NAME.pem with NAME.key for each node and for `client`. "
        "Run again, it uses the CA that is there. Needs the program openssl.",
    )
    way.add_argument("--to", type=folder, required=True, metavar="DIR", help="where to write them")
    way.add_argument(
        "--nodes", default="n0,n1,n2", metavar="ID,...", help="the members' ids (default n0,n1,n2)"
    )
    way.add_argument(
        "--hosts",
        default="",
        metavar="HOST,...",
        help="names and addresses by which nodes are dialled, beside their ids and localhost",
    )
    way.add_argument(
        "--days", type=int, default=DAYS_DEFAULT, help=f"how long (default {DAYS_DEFAULT})"
    )
    way.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Make the CA if it is missing, and all certificates again."""
    nodes = _names("--nodes", arguments.nodes)
    hosts = _names("--hosts", arguments.hosts) if arguments.hosts else []
    if not 1 <= arguments.days <= 36_500:
        raise ConfigurationError(f"--days = {arguments.days} is not allowed: it must be 1 to 36500")
    for name in sorted(_TAKEN.keys() & {node.lower() for node in nodes}):
        raise ConfigurationError(f"--nodes: {name!r} is the name of the files of {_TAKEN[name]}")
    place: Path = arguments.to
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"--to {place}: it must be a folder, or one that can be made: {error.strerror}"
        ) from None
    days = str(arguments.days)
    with _staged(place) as folder:
        authority = folder if _lacks_ca(place) else place
        if authority is folder:
            _make_ca(folder, days)
        for name in (*nodes, _CLIENT):
            _make(authority, folder, name, [name, *hosts, *_LOCAL], days)
    print(f"{place / 'ca.pem'}: the CA; {', '.join((*nodes, _CLIENT))}: NAME.pem and NAME.key")
    return 0


def make_ca(place: Path, days: str) -> None:
    """Make ca.pem and ca.key if they are missing. Raises the exceptions of `_lacks_ca`."""
    if _lacks_ca(place):
        with _staged(place) as folder:
            _make_ca(folder, days)


def _lacks_ca(place: Path) -> bool:
    """Whether there is no CA yet.

    Raises:
        ConfigurationError: only one of its files is missing: what the other belongs to would be
            lost.
    """
    paths = (place / "ca.pem", place / "ca.key")
    there = [path for path in paths if path.exists()]
    missing = [path for path in paths if path not in there]
    if there and missing:
        raise ConfigurationError(
            f"{missing[0]} is missing, and {there[0]} is there: put it back, or remove the other "
            "one, too, for a new CA"
        )
    return not there


def _make_ca(folder: Path, days: str) -> None:
    key = _make_key(folder, "ca")
    made = _openssl(
        *("req", "-x509", "-new", "-key", str(key), "-days", days),
        *("-subj", "/CN=Beanpole development CA"),
        *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
    )
    _write(folder / "ca.pem", made)


def make_certificate(place: Path, name: str, names: Sequence[str], days: str) -> None:
    """Make NAME.pem and NAME.key for these DNS names and addresses, signed by the CA."""
    with _staged(place) as folder:
        _make(place, folder, name, names, days)


@contextmanager
def _staged(place: Path) -> Iterator[Path]:
    """Yield a folder whose files go to `place` at the end; if anything fails before, none of them.

    A file that is replaced this way has the permissions of the new one.

    Raises:
        ConfigurationError: a folder has the name of one of the files.
        OSError: the disk refuses; it names `place`, because the folder is gone by then.
    """
    try:
        with TemporaryDirectory(prefix=".making-", dir=place) as made:
            folder = Path(made)
            yield folder
            # Sorted, so that a key and its certificate are replaced right after each other.
            staged = [(path, place / path.name) for path in sorted(folder.iterdir())]
            for _, target in staged:
                if target.is_dir() and not target.is_symlink():
                    raise ConfigurationError(f"{target} is a folder, and not the file to replace")
            for path, target in staged:
                path.replace(target)
    except OSError as error:
        error.filename, error.filename2 = str(place), None
        raise


def _make(authority: Path, folder: Path, name: str, names: Sequence[str], days: str) -> None:
    """Make a certificate of the CA in one folder in another folder."""
    key, extensions = _make_key(folder, name), folder / f".{name}.ext"
    request = _openssl("req", "-new", "-key", str(key), "-subj", f"/CN={name}")
    _write(extensions, f"subjectAltName={','.join(map(_entry, dict.fromkeys(names)))}\n")
    # A serial number of its own needs no file beside the CA that counts them.
    serial = f"0x{secrets.randbits(_SERIAL_BITS):x}"
    made = _openssl(
        *("x509", "-req", "-days", days, "-set_serial", serial, "-extfile", str(extensions)),
        *("-CA", str(authority / "ca.pem"), "-CAkey", str(authority / "ca.key")),
        given=request,
    )
    _write(folder / f"{name}.pem", made)
    extensions.unlink()


def _make_key(folder: Path, name: str) -> Path:
    path = folder / f"{name}.key"
    _write(path, _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"))
    return path


def _write(path: Path, text: str) -> None:
    """Write a file that only its owner can read, so that it is whole on the disk at return.

    openssl itself ends with status 0 after a write to a full disk has failed.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)


def _names(option: str, text: str) -> list[str]:
    names = [part.strip() for part in text.split(",")]
    for name in names:
        if not (_NAME.fullmatch(name) or _is_address(name)):
            raise ConfigurationError(
                f"{option}: {name!r} is not allowed: names of letters, digits, '_', '-' and '.', "
                "or addresses, separated by commas"
            )
    return names


def _is_address(text: str) -> bool:
    """Whether this is an address; one with a zone, fe80::1%eth0, cannot be in a certificate."""
    if "%" in text:
        return False
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _entry(name: str) -> str:
    return f"{'IP' if _is_address(name) else 'DNS'}:{name}"


def _openssl(*words: str, given: str = "") -> str:
    """Run openssl with a standard input, and return its output in PEM.

    Raises:
        ConfigurationError: it is not installed, or failed; with its own message.
    """
    try:
        done = subprocess.run(
            ["openssl", *words], input=given, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise ConfigurationError(
            "the program openssl is not installed (Debian: apt-get install openssl)"
        ) from None
    if done.returncode or "-----END " not in done.stdout:
        raise ConfigurationError(f"openssl {words[0]} failed: {done.stderr.strip()}")
    return done.stdout
