"""Shell commands in the pages of the project can be pasted: a synopsis is not marked as shell."""

import re
from pathlib import Path

import pytest

from tests.unit.test_links import PAGES, ROOT

SHELL = re.compile(r"^( *)```sh\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
# An option or a value that may be left out, such as [--json], or repeated: FILE...
SYNOPSIS = re.compile(r"\[-|\[[A-Z]|\]\.\.\.|[A-Z]\.\.\.")


def synopses(text: str) -> list[str]:
    """Return the lines of shell that are no commands."""
    lines = [line for block in SHELL.finditer(text) for line in block[2].splitlines()]
    return [line for line in lines if SYNOPSIS.search(line.partition(" # ")[0])]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_its_commands_can_be_pasted(page: Path) -> None:
    assert synopses(page.read_text()) == []


def test_a_synopsis_is_found() -> None:
    text = (
        "```sh\na [--json]  # x\na x  # or [--json]\n```\n1. b\n\n   ```sh\n   c DIR...\n   ```\n"
    )
    assert synopses(text) == ["a [--json]  # x", "   c DIR..."]
    assert synopses(text.replace("```sh", "```text")) == []
