"""docs/commands.md: all commands and options of both programs, as their parsers describe them.

argparse's own usage has other line breaks in other versions of Python, so it is written here.
"""

import re
from argparse import (
    Action,
    ArgumentParser,
    HelpFormatter,
    _HelpAction,
    _MutuallyExclusiveGroup,
    _SubParsersAction,
)
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from beanpoled.cli.completion import parsers
from tests.unit.references.markdown import code, head, table, text

# An option that this many commands have is described once.
SHARED_MIN: Final = 10
USAGE_COLUMNS: Final = 96
_INDENT: Final = "    "
_TITLES: Final = ("option", "value", "meaning", "default")
_DEFAULT: Final = re.compile(r"\s*\(default:? ([^()]*)\)")
_HEAD: Final = (
    "All commands of `beanpole`, the command line, and all flags of `beanpoled`, a node, with the "
    "words of `--help`. [operating.md](operating.md) describes how they are used."
)
_FLAGS: Final = (
    "Most flags are settings: each can also be a line of the TOML file or a variable of the "
    "environment. [operating.md](operating.md#configuration) has their defaults."
)
# Options with equal values here are the same, except for their type.
Same = tuple[tuple[str, ...], str, str]


def page(beanpole: ArgumentParser, beanpoled: ArgumentParser) -> str:
    """Return the page.

    Args:
        beanpole: the parser of the command line.
        beanpoled: the parser of a node.
    """
    found = list(parsers(beanpole))[1:]
    counts = Counter(_same(one, option) for one, _ in found for option in _options(one))
    shared = {same for same, count in counts.items() if count >= SHARED_MIN}
    lines = head("Commands", "the parsers of both programs", _HEAD)
    lines += ["## beanpole", "", text(f"{beanpole.description}"), ""]
    lines += _list(found, beanpole)
    lines += [text(f"{beanpole.epilog}"), "", "### Shared options", ""]
    lines += ["Many commands have these options; their sections name them without a row.", ""]
    lines += table(_TITLES, _shared_rows(found, shared))
    descriptions = {one.prog: one.description for one, _ in found}
    for one, words in found:
        inherited = descriptions.get(one.prog.rpartition(" ")[0])
        lines += _section(one, words, inherited, shared)
    lines += ["## beanpoled", "", text(f"{beanpoled.description}. {_FLAGS}"), ""]
    lines += table(_TITLES, [_row(beanpoled, option) for option in _options(beanpoled)])
    return "\n".join([*lines, text(f"{beanpoled.epilog}"), ""])


def _section(
    parser: ArgumentParser, words: str, inherited: str | None, shared: set[Same]
) -> list[str]:
    """Return the section of one command.

    Args:
        parser: of the command.
        words: its line in the list of commands.
        inherited: the description of the command above it, which is not repeated.
        shared: the options that are described once.
    """
    lines = [f"{_level(parser)} {parser.prog}", "", text(f"{words[:1].upper()}{words[1:]}."), ""]
    if parser.description and parser.description != inherited:
        lines += [text(parser.description), ""]
    options = _options(parser)
    own = [option for option in options if _same(parser, option) not in shared]
    if options:
        lines += ["```", *_usage(parser), "```", ""]
    if own:
        lines += table(_TITLES, [_row(parser, option) for option in own])
    others = [_shared_name(parser, option) for option in options if option not in own]
    if others:
        lines += [f"[Shared options](#shared-options): {', '.join(others)}.", ""]
    below = [(one, line) for one, line in parsers(parser) if one is not parser]
    return lines + (_list(below, parser) if below else [])


def _level(parser: ArgumentParser) -> str:
    return "#" * (parser.prog.count(" ") + 2)


def _list(found: Iterable[tuple[ArgumentParser, str]], above: ArgumentParser) -> list[str]:
    """Return the list of the commands that are directly below another one."""
    words = above.prog.count(" ") + 1
    rows = [
        (f"[`{one.prog}`](#{one.prog.replace(' ', '-')})", text(line))
        for one, line in found
        if one.prog.count(" ") == words
    ]
    return table(("command", "meaning"), rows)


def _options(parser: ArgumentParser) -> list[Action]:
    """Return arguments and options of a command, arguments first."""
    kinds = (_HelpAction, _SubParsersAction)
    found = [action for action in parser._actions if not isinstance(action, kinds)]
    return sorted(found, key=lambda action: bool(action.option_strings))


def _same(parser: ArgumentParser, option: Action) -> Same:
    return (tuple(option.option_strings), _value(parser, option), option.help or "")


def _shared_rows(
    found: Iterable[tuple[ArgumentParser, str]], shared: set[Same]
) -> list[tuple[str, ...]]:
    rows: dict[Same, tuple[str, ...]] = {}
    for one, _ in found:
        for option in _options(one):
            same = _same(one, option)
            if same in shared and same not in rows:
                rows[same] = _row(one, option)
    return sorted(rows.values())


def _shared_name(parser: ArgumentParser, option: Action) -> str:
    """Return the name of a shared option, with the protocol that it is for if it is for one.

    There are two of --addr: one takes addresses of gRPC, and the other those of beanstalk.
    """
    kind = re.match(r"(\S+) addresses ", option.help or "")
    name = code(option.option_strings[0])
    return f"{name} ({kind[1]})" if kind else name


def _row(parser: ArgumentParser, option: Action) -> tuple[str, ...]:
    """Return name, value, meaning and default of an option."""
    words = _formatter(parser)._expand_help(option) if option.help else ""
    default = _DEFAULT.search(words)
    if default:
        words = words[: default.start()] + words[default.end() :]
    value = _value(parser, option)
    names = list(option.option_strings)
    if not names:  # an argument
        names, value = [value], ""
    name = ", ".join(map(code, names))
    return (name, code(value), text(words), text(default[1]) if default else "")


def _formatter(parser: ArgumentParser) -> HelpFormatter:
    return HelpFormatter(parser.prog, width=USAGE_COLUMNS)


def _value(parser: ArgumentParser, option: Action) -> str:
    """Return the value that an option takes, in the notation of the usage."""
    if option.nargs == 0:
        return ""
    formatter = _formatter(parser)
    if option.option_strings:
        return formatter._format_args(option, option.dest.upper())
    return formatter._format_args(option, option.dest)


def _usage(parser: ArgumentParser) -> list[str]:
    """Return the usage in lines: options, arguments, and the subcommand, if there are any."""
    groups = {
        id(action): group
        for group in parser._mutually_exclusive_groups
        for action in group._group_actions
    }
    parts: list[str] = []
    options = sorted(_options(parser), key=lambda option: not option.option_strings)
    written: set[int] = set()
    for option in options:
        group = groups.get(id(option))
        if group is None:
            parts.append(_part(parser, option))
        elif id(group) not in written:
            written.add(id(group))
            parts.append(_choice(parser, group))
    parts += (
        "COMMAND ..." if action.required else "[COMMAND ...]"
        for action in parser._actions
        if isinstance(action, _SubParsersAction)
    )
    return _wrapped(parser.prog, parts)


def _choice(parser: ArgumentParser, group: _MutuallyExclusiveGroup) -> str:
    parts = " | ".join(
        _part(parser, option).removeprefix("[").removesuffix("]") for option in group._group_actions
    )
    return f"({parts})" if group.required else f"[{parts}]"


def _part(parser: ArgumentParser, option: Action) -> str:
    value = _value(parser, option)
    if not option.option_strings:
        return value
    words = f"{option.option_strings[0]} {value}".rstrip()
    return words if option.required else f"[{words}]"


def _wrapped(line: str, parts: Sequence[str]) -> list[str]:
    lines = []
    for part in parts:
        if len(line) + 1 + len(part) > USAGE_COLUMNS:
            lines.append(line)
            line = f"{_INDENT}{part}"
        else:
            line += f" {part}"
    return [*lines, line]
