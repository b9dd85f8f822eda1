"""`beanpole user`: users with their rights, tokens and rules.

This file has the options, and prints users; docs/security.md describes them.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

from beanpole.client import where
from beanpole.client.patience import REPLY_TIMEOUT_S
from beanpole.client.terminals import visible
from beanpole.core.users import ANONYMOUS
from beanpole.errors import ConfigurationError
from beanpole.pb import users_pb2, users_pb2_grpc
from beanpoled.cli import tokens, values
from beanpoled.cli.asking import ask, says_absent
from beanpoled.cli.exits import say_done, say_no

_RIGHTS: Final = {
    "put": users_pb2.RIGHT_PUT,
    "work": users_pb2.RIGHT_WORK,
    "admin": users_pb2.RIGHT_ADMIN,
    "events": users_pb2.RIGHT_EVENTS,
}
_RIGHT_WORDS: Final = {right: word for word, right in _RIGHTS.items()}
_ALL: Final = "all"
# Represents any protocol, network or certificate in a line of rules.
_ANY: Final = "-"
# In place of the rights of a user that has none.
_NO_RIGHT: Final = "no right"
# The user of clients without a token to whom no rule gives another one.
_ANONYMOUS: Final = ANONYMOUS.decode()
_RULE_WORDS: Final = "PROTOCOL NETWORK CERTIFICATE USER"
_USER_HELP: Final = "name of the user"

_LIMIT_FIELDS: Final = users_pb2.Limits.DESCRIPTOR.fields

T = TypeVar("T")


def add_command(commands: Any) -> None:
    """Add `user` to the parser."""
    parser = commands.add_parser("user", help="users: rights, tokens, rules")
    ways = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add(ways, "list", _list, "print all users and their rights")
    way = _add(ways, "show", _show, "print one user")
    way.add_argument("user", metavar="USER", help=_USER_HELP)
    _add_set(ways)
    way = _add(ways, "drop", _drop, "remove a user; its connections may do nothing from then on")
    way.description = (
        f"Without `{_ANONYMOUS}`, clients without a token may do everything: "
        f"`user set {_ANONYMOUS}` without a --right takes their rights away."
    )
    way.add_argument("user", metavar="USER", help=_USER_HELP)
    way.add_argument(
        "--yes",
        action="store_true",
        help=f"drop `{_ANONYMOUS}`, too: from then on everybody may do everything",
    )
    way = _add(ways, "token", _token, "draw a new token for a user and print it once")
    way.add_argument("user", metavar="USER", help=_USER_HELP)
    way.add_argument(
        "--drop",
        metavar="ID",
        help="take a token away instead, by what `user show` says of it; its connections may do "
        "nothing from then on",
    )
    way = _add(ways, "rules", _rules, "print by which rules clients are users")
    way.add_argument(
        "--set",
        dest="file",
        metavar="FILE",
        help=f"replace them by the lines of this file, or - for the input: {_RULE_WORDS}, with "
        f"{_ANY} for any; the first that fits a client counts; /dev/null removes all",
    )
    _add(ways, "whoami", _whoami, "print the user of this command, and its rights")


def _add_set(ways: Any) -> None:
    way = _add(ways, "set", _set, "let a user have these rights and limits, whatever it had")
    way.description = (
        "A new user has no token yet. `anonymous` is the user of clients without a token, which "
        "may do everything while no such user exists."
    )
    way.add_argument("user", metavar="USER", help=_USER_HELP)
    way.add_argument(
        "--right",
        dest="rights",
        type=right,
        action="append",
        default=[],
        metavar="RIGHTS=PATTERN",
        help="put, work, admin, events or all, with commas between, in a queue such as mail or "
        "gearman:resize, in names that begin alike ('mail-*', 'gearman:*'), or in every queue of "
        "every protocol and all else ('all:*'); quoted for the shell; may be repeated",
    )
    way.add_argument(
        "--jobs-max",
        type=values.limit,
        default=0,
        metavar="N",
        help="refuse a put while this many jobs of its puts exist; those from before this quota "
        "do not count",
    )
    way.add_argument(
        "--bytes-max",
        type=values.not_zero(values.size_bytes),
        default=0,
        metavar="SIZE",
        help="of all their bodies: 64MiB",
    )
    way.add_argument(
        "--commands-per-second-max",
        type=values.limit,
        default=0,
        metavar="N",
        help="its connections are read no faster than that, at each node",
    )


def _add(
    ways: Any, name: str, run: Callable[[argparse.Namespace], int], words: str
) -> argparse.ArgumentParser:
    way: argparse.ArgumentParser = ways.add_parser(name, help=words)
    way.add_argument("--json", action="store_true", help="print JSON")
    where.add_options(way, where.GRPC)
    way.set_defaults(run=says_absent(run))
    return way


def right(text: str) -> users_pb2.Rights:
    """Parse RIGHTS=PATTERN."""
    words, equals, pattern = text.partition("=")
    found = list(_RIGHTS) if words == _ALL else words.split(",")
    if not equals or not pattern or not set(found) <= _RIGHTS.keys():
        known = ", ".join((*_RIGHTS, _ALL))
        raise argparse.ArgumentTypeError(f"{text!r} is not RIGHTS=PATTERN with rights of {known}")
    return users_pb2.Rights(pattern=pattern, rights=[_RIGHTS[word] for word in found])


# --- users ----------------------------------------------------------------------------------------


def _list(arguments: argparse.Namespace) -> int:
    users: list[users_pb2.User] = []
    request = users_pb2.ListUsersRequest()
    while True:
        reply = _read(arguments, lambda stub: stub.List(request, timeout=REPLY_TIMEOUT_S))
        users += reply.users
        request.after = reply.next_after
        if not request.after:
            break
    if arguments.json:
        print(json.dumps([_as_json(user) for user in users]))
        return 0
    for user in users:
        words = [_words(user.rights), _count(len(user.token_ids), "token"), *limit_words(user)]
        print(f"{user.name}: {'; '.join(words)}")
    if not users:
        print("there are no users: everybody may do everything")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    request = users_pb2.ListUsersRequest(name=arguments.user)
    reply = _read(arguments, lambda stub: stub.List(request, timeout=REPLY_TIMEOUT_S))
    found = next(iter(reply.users), None) if arguments.user else None
    if found is None:
        return say_no(f"there is no user {arguments.user!r}", arguments.json)
    if arguments.json:
        print(json.dumps(_as_json(found)))
        return 0
    print(f"{found.name}:")
    for line in _lines(found.rights) or [_NO_RIGHT]:
        print(f"  {line}")
    for words in limit_words(found):
        print(f"  {words}")
    for token in found.token_ids:
        print(f"  token {token}")
    return 0


def _set(arguments: argparse.Namespace) -> int:
    limits = users_pb2.Limits(
        jobs_max=arguments.jobs_max,
        bytes_max=arguments.bytes_max,
        commands_per_second_max=arguments.commands_per_second_max,
    )
    request = users_pb2.SetUserRequest(name=arguments.user, rights=arguments.rights, limits=limits)
    _ask(arguments, lambda stub: stub.Set(request, timeout=REPLY_TIMEOUT_S))
    words = [_words(arguments.rights), *limit_words(users_pb2.User(limits=limits), with_use=False)]
    plain = {
        "name": arguments.user,
        "rights": _rights_json(arguments.rights),
        "limits": _limits_json(limits),
    }
    return say_done(f"{arguments.user}: {'; '.join(words)}", plain, arguments.json)


def _drop(arguments: argparse.Namespace) -> int:
    is_anonymous = arguments.user == _ANONYMOUS
    if is_anonymous and not arguments.yes:
        raise ConfigurationError(
            f"user drop {_ANONYMOUS}: without it, everybody may do everything; `user set "
            f"{_ANONYMOUS}` takes all rights of those that say nothing, --yes drops it"
        )
    request = users_pb2.DropUserRequest(name=arguments.user)
    _ask(arguments, lambda stub: stub.Drop(request, timeout=REPLY_TIMEOUT_S))
    status = say_done(
        f"there is no user {arguments.user} any more", {"dropped": arguments.user}, arguments.json
    )
    if is_anonymous:
        words = "from now on everybody may do everything, without a token"
        print(words, file=sys.stderr if arguments.json else sys.stdout)
    return status


def _token(arguments: argparse.Namespace) -> int:
    if arguments.drop is not None:
        if not arguments.drop:
            raise ConfigurationError(
                "--drop '' is not allowed: it must be an id of `user show`, or its beginning"
            )
        drop = users_pb2.DropTokenRequest(user=arguments.user, token_id=arguments.drop)
        _ask(arguments, lambda stub: stub.DropToken(drop, timeout=REPLY_TIMEOUT_S))
        words = f"{arguments.user} has the token {arguments.drop} no more"
        plain = {"user": arguments.user, "dropped": arguments.drop}
        return say_done(words, plain, arguments.json)
    token = tokens.drawn()
    request = users_pb2.AddTokenRequest(user=arguments.user, digest=token.digest)
    _ask(arguments, lambda stub: stub.AddToken(request, timeout=REPLY_TIMEOUT_S))
    if arguments.json:
        print(json.dumps({"user": arguments.user, "token": token.text}))
    else:
        print(token.text)
        print(f"hint: {tokens.ONCE}", file=sys.stderr)
    return 0


def _whoami(arguments: argparse.Namespace) -> int:
    reply = _read(
        arguments, lambda stub: stub.WhoAmI(users_pb2.WhoAmIRequest(), timeout=REPLY_TIMEOUT_S)
    )
    if arguments.json:
        found = {"user": reply.user, "rights": _rights_json(reply.rights)}
        print(json.dumps({**found, "has_users": reply.has_users}))
        return 0
    print(f"{reply.user}: {_words(reply.rights)}")
    if not reply.has_users:
        print("there are no users: everybody may do everything")
    return 0


# --- rules ----------------------------------------------------------------------------------------


def _rules(arguments: argparse.Namespace) -> int:
    if arguments.file is not None:
        request = users_pb2.SetRulesRequest(rules=read_rules(_text_of(arguments.file)))
        _ask(
            arguments,
            lambda stub: stub.SetRules(request, timeout=REPLY_TIMEOUT_S),
            look="beanpole user rules",
        )
        found = list(request.rules)
    else:
        reply = _read(
            arguments,
            lambda stub: stub.ListRules(users_pb2.ListRulesRequest(), timeout=REPLY_TIMEOUT_S),
        )
        found = list(reply.rules)
    if arguments.json:
        print(json.dumps([_rule_json(rule) for rule in found]))
        return 0
    for rule in found:
        print(" ".join(visible(value or _ANY) for value in _rule_json(rule).values()))
    return 0


def _text_of(path: str) -> str:
    if not path:
        raise ConfigurationError(
            "--set '' is not allowed: it must be a file, or - for standard input"
        )
    if path == "-" and sys.stdin is None:
        raise ConfigurationError("--set -: standard input is closed; give a file")
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text()
    except OSError as error:
        raise ConfigurationError(f"--set {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"--set {path}: {error}") from None
    if path == "-" and not text.strip():
        # The program before the pipe may have failed, and all clients that rules identify would
        # lose their rights. A file without rules was named on purpose.
        raise ConfigurationError(
            "--set -: standard input is empty; --set /dev/null removes all rules"
        )
    return text


def read_rules(text: str) -> list[users_pb2.Rule]:
    """Parse lines of rules; empty lines, and lines that begin with #, are skipped.

    Raises:
        ConfigurationError: a line is not a rule.
    """
    rules = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != len(_RULE_WORDS.split()):
            raise ConfigurationError(f"line {number}: {line.strip()!r} is not {_RULE_WORDS}")
        protocol, network, certificate = ("" if word == _ANY else word for word in words[:3])
        rules.append(
            users_pb2.Rule(
                protocol=protocol, network=network, certificate=certificate, user=words[3]
            )
        )
    return rules


def _rule_json(rule: users_pb2.Rule) -> dict[str, str | None]:
    return {field.name: getattr(rule, field.name) or None for field in rule.DESCRIPTOR.fields}


# --- output ---------------------------------------------------------------------------------------


def _lines(rights: Iterable[users_pb2.Rights]) -> list[str]:
    return [
        f"{','.join(_RIGHT_WORDS.get(one, str(one)) for one in item.rights)}="
        f"{visible(item.pattern)}"
        for item in rights
    ]


def _words(rights: Iterable[users_pb2.Rights]) -> str:
    return " ".join(_lines(rights)) or _NO_RIGHT


def limit_words(user: users_pb2.User, with_use: bool = True) -> list[str]:
    """Return the limits of a user in words, with its usage if that is known."""
    limits = user.limits
    parts = []
    for used, most, unit in (
        (user.jobs, limits.jobs_max, "jobs"),
        (user.bytes, limits.bytes_max, "bytes"),
    ):
        if most:
            parts.append(f"{used} of {most} {unit}" if with_use else f"at most {most} {unit}")
    if limits.commands_per_second_max:
        parts.append(f"at most {limits.commands_per_second_max} commands a second at each node")
    return parts


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _rights_json(rights: Iterable[users_pb2.Rights]) -> list[dict[str, Any]]:
    return [
        {
            "pattern": item.pattern,
            "rights": [_RIGHT_WORDS.get(one, str(one)) for one in item.rights],
        }
        for item in rights
    ]


def _limits_json(limits: users_pb2.Limits) -> dict[str, int]:
    return {field.name: getattr(limits, field.name) for field in _LIMIT_FIELDS}


def _as_json(user: users_pb2.User) -> dict[str, Any]:
    return {
        "name": user.name,
        "rights": _rights_json(user.rights),
        "token_ids": list(user.token_ids),
        "limits": _limits_json(user.limits),
        "jobs": user.jobs,
        "bytes": user.bytes,
    }


def _read(arguments: argparse.Namespace, call: Callable[[users_pb2_grpc.UsersStub], T]) -> T:
    return ask(arguments, users_pb2_grpc.UsersStub, call)


def _ask(
    arguments: argparse.Namespace,
    call: Callable[[users_pb2_grpc.UsersStub], T],
    look: str = "beanpole user list",
) -> T:
    """Ask for a change."""
    return ask(arguments, users_pb2_grpc.UsersStub, call, look)
