"""Golden scripts: files of commands, each followed by its output.

This module only handles the files: it parses them, lets a world perform them, compares the output
and rewrites it. The commands are defined in `replication_world.py` and `leader_world.py`.

A step of a script is prose (lines that begin with `#`), a command with the lines that belong to it,
a line `----`, and the output up to an empty line. With BEANPOLE_GOLDEN=rewrite (`make golden`) the
output is written into the file; otherwise a difference fails as a diff.
"""

import difflib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, Protocol

SETTING: Final = "BEANPOLE_GOLDEN"
RULE: Final = "----"


class World(Protocol):
    """The state that the commands of a script act on."""

    def perform(self, command: str, lines: list[str]) -> list[str]:
        """Perform one command with the lines below it and return its output."""
        ...


class Step(NamedTuple):
    """A command, and the text around it in its file."""

    prose: list[str]
    command: str
    lines: list[str]


def steps_of(text: str) -> list[Step]:
    """Return the steps of a script, without their output."""
    steps: list[Step] = []
    for block in text.strip("\n").split("\n\n"):
        lines = block.split("\n")
        prose = [line for line in lines if line.startswith("#")]
        rest = lines[len(prose) :]
        if not rest:
            steps.append(Step(prose, "", []))
            continue
        assert RULE in rest, f"no {RULE} below {rest[0]!r}"
        head = rest[: rest.index(RULE)]
        assert head, f"no command above {RULE} in {block!r}"
        steps.append(Step(prose, head[0], head[1:]))
    return steps


def performed(text: str, world: World) -> str:
    """Return the script with the output of this program."""
    blocks: list[str] = []
    for prose, command, lines in steps_of(text):
        block = list(prose)
        if command:
            output = world.perform(command, lines)
            assert all(output), f"{command}: an empty line ends the output"
            block += [command, *lines, RULE, *output]
        blocks.append("\n".join(block))
    return "\n\n".join(blocks) + "\n"


def check(path: Path, world: Callable[[], World]) -> None:
    """Perform a script and compare its output, or write it if that is asked for.

    Raises:
        AssertionError: this program does something else, with the difference as a diff.
    """
    text = path.read_text()
    found = performed(text, world())
    if os.environ.get(SETTING) == "rewrite":
        path.write_text(found)
        return
    difference = difflib.unified_diff(
        text.splitlines(), found.splitlines(), f"{path.name}", "this program", lineterm="", n=6
    )
    lines = list(difference)
    assert not lines, "\n".join(["another output (if that is intended: make golden)", *lines])
