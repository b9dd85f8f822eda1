"""`beanpole import-qless`: import the jobs of a qless in a Redis into the cluster.

`beanpole.client.qless_import` reads and sends them; this file has the options and the report.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from beanpole.addresses import split_address
from beanpole.client import tls_files, where
from beanpole.client.printing import print_lines
from beanpole.client.qless_import import bring, look
from beanpole.client.qless_outcome import Outcome
from beanpole.client.qless_source import Source
from beanpole.client.redis import AuthenticationFailed, Redis
from beanpole.errors import ClientError, ConfigurationError
from beanpole.numbers import whole_within
from beanpoled.cli.exits import EXIT_NO_ANSWER
from beanpoled.cli.values import NUMBER_MAX

SCHEME: Final = "redis://"
REDIS_PORT: Final = 6379
# A Redis answers at once, unless it loads a dump.
PATIENCE_S: Final = 0.0

_BROKEN_OFF: Final = "broken off there: what was brought stays; repeat the command"
_ROW: Final = "{:<12} {:>10} {:>10} {:>14} {:>10}"


def add_command(commands: Any) -> None:
    """Add `import-qless` to the parser."""
    parser = commands.add_parser(
        "import-qless",
        help="bring the jobs of a qless in a Redis into the cluster",
        description=(
            "Reads jobs, queues, options, throttles and recurring jobs of qless or reqless from a "
            "running Redis, and makes those that the cluster has not; may be repeated. Nobody "
            "should use that qless meanwhile. Jobs that run there wait here, in front."
        ),
    )
    parser.add_argument(
        "redis", metavar="REDIS", help="HOST:PORT, or redis://[USER@]HOST[:PORT][/DATABASE]"
    )
    parser.add_argument(
        "--password-file", type=Path, metavar="FILE", help="its first line is the password"
    )
    where.add_options(parser, where.QLESS, "--to")
    parser.add_argument("--dry-run", action="store_true", help="only count what is there")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Import everything, and report."""
    user, address, database = _place(arguments.redis)
    password = _password(arguments.password_file)
    if user and not password:
        raise ConfigurationError(f"REDIS names the user {user!r}: --password-file is required")
    now = time.time()
    outcome = Outcome()
    with Redis(
        [address],
        user=user,
        password=password,
        database=database,
        patience_s=PATIENCE_S,
        peer="Redis",
    ) as redis:
        try:
            redis.ask(b"PING")
        except ClientError as error:
            hint = "; --password-file" if isinstance(error, AuthenticationFailed) else ""
            raise ClientError(f"the Redis at {address} cannot be read: {error}{hint}") from None
        source = Source(redis, now)
        if arguments.dry_run:
            print(_report(look(source), dry=True))
            return 0
        to, tls = tls_files.encryption(where.addresses(arguments, where.QLESS))
        with Redis(to, token=where.token(), tls=tls) as target:
            try:
                bring(source, target, now, _progress, outcome)
            except BaseException:  # a server does not answer, an unknown key, or Ctrl-C
                if outcome.begun:
                    _say(outcome)
                    print(_BROKEN_OFF, file=sys.stderr)
                raise
    _say(outcome)
    return EXIT_NO_ANSWER if outcome.refused or outcome.lacking_count else 0


def _say(outcome: Outcome) -> None:
    """Print what an import did, and on standard error what was refused or could not be read."""
    print_lines((_report(outcome, dry=False),))
    _name("refused", outcome.reasons, outcome.refused)
    _name("imported without what cannot be read", outcome.lacking, outcome.lacking_count)


def _name(title: str, reasons: Sequence[str], count: int) -> None:
    for reason in reasons:
        print(f"{title}: {reason}", file=sys.stderr)
    if count > len(reasons):
        print(f"... and {count - len(reasons)} more", file=sys.stderr)


def _place(text: str) -> tuple[str, str, int]:
    """Return the user, the address and the database that a text names."""
    rest = text.removeprefix(SCHEME)
    user, _, rest = rest.rpartition("@")
    if ":" in user:
        raise ConfigurationError("REDIS must not hold a password: use --password-file")
    address, _, database = rest.partition("/")
    if text.startswith(SCHEME) and ":" not in address.rpartition("]")[2]:
        address = f"{address}:{REDIS_PORT}"
    try:
        split_address(address)
    except ValueError as error:
        raise ConfigurationError(
            f"REDIS = {text!r} is not allowed: it must be {error}, or {SCHEME}HOST..."
        ) from None
    number = whole_within(database or "0", 0, NUMBER_MAX)
    if number is None:
        raise ConfigurationError(f"REDIS = {text!r}: the database {database!r} is no number")
    return unquote(user), address, number


def _password(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--password-file {path}: {error}") from None
    if not lines or not lines[0]:
        raise ConfigurationError(f"--password-file {path}: its first line is empty")
    return lines[0]


def _progress(done: int, total: int) -> None:
    print(f"{done} of {total} jobs", file=sys.stderr)


def _report(outcome: Outcome, dry: bool) -> str:
    titles = ("found",) if dry else ("found", "imported", "already there", "refused")
    lines = [_ROW.format("", *titles, *[""] * (4 - len(titles))).rstrip()]
    for kind, tally in outcome.kinds.items():
        numbers = [str(number) for number in tally][: len(titles)]
        lines.append(_ROW.format(kind, *numbers, *[""] * (4 - len(titles))).rstrip())
    return "\n".join(lines)
