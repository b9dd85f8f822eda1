"""`beanpole completion`: what a shell needs to complete commands, options and files.

The script is made of the parser itself, so that it knows each command that there is.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

# How each shell takes it, for the help.
SHELLS: Final = {
    "bash": 'eval "$(beanpole completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(beanpole completion zsh)" in ~/.zshrc, behind compinit',
    "fish": "beanpole completion fish > ~/.config/fish/completions/beanpole.fish",
}
# What stands for a path in the help of an option, and for which kind of it.
_PATHS: Final = {"DIR": "directory", "FILE": "file"}


def add_command(commands: Any, root: Callable[[], argparse.ArgumentParser]) -> None:
    """Add `completion` to the parser that `root` makes."""
    parser = commands.add_parser(
        "completion",
        help="print what a shell needs to complete commands and options",
        description="; ".join(f"{shell}: {line}" for shell, line in SHELLS.items()),
    )
    parser.add_argument("shell", choices=sorted(SHELLS))
    parser.set_defaults(run=partial(run, root))


def run(root: Callable[[], argparse.ArgumentParser], arguments: argparse.Namespace) -> int:
    """Print the script of a shell."""
    import shtab  # here, because every other command would pay for it

    parser = root()
    kinds = {"directory": shtab.DIRECTORY, "file": shtab.FILE}
    for action in _actions(parser):
        metavar = action.metavar if isinstance(action.metavar, str) else ""
        if metavar in _PATHS and action.choices is None:
            action.complete = kinds[_PATHS[metavar]]  # type: ignore[attr-defined]  # read by shtab
    print(shtab.complete(parser, arguments.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All options and arguments, of all commands below, too."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in set(action.choices.values()):
                yield from _actions(below)
