"""Every command that asks a cluster also prints JSON; exceptions have a reason."""

import argparse
import json
from collections.abc import Iterator

import pytest

from beanpole import VERSION
from beanpoled.cli import jobs, main, parser

EXEMPT = {
    **dict.fromkeys(
        ("put", "delete", "release", "bury", "kick"), "it prints the words of beanstalk's protocol"
    ),
    **dict.fromkeys(
        ("restore", "certs dev", "recover", "import-qless", "events export", "events compact"),
        "its result is the files or jobs that it makes, and its exit status",
    ),
    **dict.fromkeys(("pipeline stream", "pipeline redrive"), "its result is its exit status"),
    "up": "it runs a cluster, whose addresses are in cluster.json",
    "reserve": "it prints the body of a job as it came",
    "peek": "it prints the body of a job as it came",
    "work": "it runs workers",
    "completion": "it prints a script for a shell",
    "pipeline report": "it writes a page of HTML",
}


def commands(made: argparse.ArgumentParser, path: str = "") -> Iterator[tuple[str, bool]]:
    """Yield every command by its name, and whether it has --json."""
    inner = [one for one in made._actions if isinstance(one, argparse._SubParsersAction)]
    if made.get_default("run") is not None:
        yield path.strip(), "--json" in made._option_string_actions
    for one in inner:
        for name, parser_of in one.choices.items():
            yield from commands(parser_of, f"{path} {name}")


def test_every_command_has_json() -> None:
    found = dict(commands(parser()))
    assert found
    assert {name for name, has in found.items() if not has} == EXEMPT.keys()


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == VERSION


def test_statistics_of_beanstalk(capsys: pytest.CaptureFixture[str]) -> None:
    text = '---\ncmd-put: 7\nrusage-utime: 0.5\nversion: "1.13"\nname: a: b\n'
    assert jobs._show_text(text, as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == {
        "cmd-put": 7,
        "rusage-utime": 0.5,
        "version": "1.13",
        "name": "a: b",
    }
    assert jobs._show_text(text, as_json=False) == 0
    assert capsys.readouterr().out == text.removeprefix("---\n")


@pytest.mark.parametrize("name", ["nan", "Infinity", "1e5", "1_000", "007", "1.50", "٣"])
def test_a_name_that_looks_like_a_number_is_text(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for key, texts in (
        *((key, jobs.TEXTS) for key in ("name", "tube", "hostname", "version", "os", "platform")),
        ("id", jobs.TEXTS_OF_SERVER),
    ):
        assert jobs._show_text(f"---\n{key}: {name}\n", as_json=True, texts=texts) == 0
        assert json.loads(capsys.readouterr().out) == {key: name}


@pytest.mark.parametrize("value", ["nan", "-inf", "Infinity", "1e999", "1_000", "9" * 400 + ".5"])
def test_what_json_has_not_is_text(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert jobs._show_text(f"---\nuptime: {value}\nid: 7\n", as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == {"uptime": value, "id": 7}
