"""What `make references` writes is fresh, and its pages name every command, option and metric."""

import re

import pytest

from beanpoled import cli, main
from beanpoled.cli.completion import parsers
from tests.unit.references import metrics
from tests.unit.references.markdown import REMEDY
from tests.unit.references.write import DOCS, FILES, ROOT


@pytest.mark.parametrize("name", FILES)
def test_the_file_is_fresh(name: str) -> None:
    assert (ROOT / name).read_text() == FILES[name](), f"{name}: {REMEDY}"


def test_every_command_and_option_is_on_the_page() -> None:
    """Found without the generator: by the usage of each parser."""
    text = (DOCS / "commands.md").read_text()
    headings = set(re.findall(r"^#+ (beanpoled?\b.*)$", text, re.MULTILINE))
    found = {one.prog: one for root in (cli.parser(), main.parser()) for one, _ in parsers(root)}
    assert len(found) > 60
    assert headings == set(found)
    for name, parser in found.items():
        (section,) = re.findall(rf"^#+ {name}\n((?:(?!#).*\n)*)", text, re.MULTILINE)
        for flag in re.findall(r"--[a-z-]+", parser.format_usage()):
            assert f"`{flag}`" in section or name == "beanpole", (name, flag)


def test_every_option_and_argument_has_a_meaning() -> None:
    for root in (cli.parser(), main.parser()):
        for parser, words in parsers(root):
            assert words or parser is root
            for action in parser._actions:
                assert action.help or action.metavar == "COMMAND", (parser.prog, action.dest)


def test_every_family_is_on_the_page_once() -> None:
    text = (DOCS / "metrics.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ", text, re.MULTILINE)
    assert sorted(rows) == sorted((one.name, one.kind) for one in metrics.families())
    assert len(rows) > 60
