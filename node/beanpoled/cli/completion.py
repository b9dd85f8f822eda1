"""`beanpole completion`: scripts for shells that complete commands, options and files.

The script is generated from the parser itself, so that it knows every command.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

# The installation in each shell, for the help.
SHELLS: Final = {
    "bash": 'eval "$(beanpole completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(beanpole completion zsh)" in ~/.zshrc, behind compinit',
    "fish": "beanpole completion fish > ~/.config/fish/completions/beanpole.fish",
}
# Metavars of options and arguments that take a path, and the kind of path. Where also a folder is
# right, the kind is "file": shells complete both then.
_PATHS: Final = {
    "COMMAND": "file",
    "DIR": "directory",
    "DIR|CONFIG": "file",
    "FILE": "file",
    "FILE|-": "file",
    "KEYFILE": "file",
    "OUT": "directory",
}


def add_command(commands: Any, root: Callable[[], argparse.ArgumentParser]) -> None:
    """Add `completion` to the parser that `root` makes."""
    parser = commands.add_parser(
        "completion",
        help="print what a shell needs to complete commands and options",
        description="; ".join(f"{shell}: {line}" for shell, line in SHELLS.items()),
    )
    parser.add_argument("shell", choices=sorted(SHELLS), help="the shell that reads the script")
    parser.set_defaults(run=partial(run, root))


def run(root: Callable[[], argparse.ArgumentParser], arguments: argparse.Namespace) -> int:
    """Print the script of a shell."""
    import shtab  # here: all other commands would pay for the import

    parser = root()
    kinds = {"directory": shtab.DIRECTORY, "file": shtab.FILE}
    actions = [(one, one.metavar) for below, _ in parsers(parser) for one in below._actions]
    for action, _ in actions:
        metavar = action.metavar if isinstance(action.metavar, str) else ""
        if metavar in _PATHS and action.choices is None:
            action.complete = kinds[_PATHS[metavar]]  # type: ignore[attr-defined]  # read by shtab
        if arguments.shell == "zsh":
            # Behind a colon zsh expects a command that completes: it would run `PORT,...`.
            action.metavar = metavar.replace(":", "\\:") or action.metavar
    script = shtab.complete(parser, arguments.shell)
    for action, before in actions:
        action.metavar = before  # the parser may be used again
    print(script)
    return 0


def parsers(
    parser: argparse.ArgumentParser, words: str = ""
) -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """Yield a parser and those of all commands below it, each with its line in the list of help.

    They come in the order of the help; a command comes before its subcommands.
    """
    yield parser, words
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            lines = {line.dest: line.help or "" for line in action._choices_actions}
            for name, below in action.choices.items():
                yield from parsers(below, lines.get(name, ""))
