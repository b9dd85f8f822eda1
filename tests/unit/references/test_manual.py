"""The manual pages: roff drops no words of them."""

import re
from argparse import ArgumentParser

import pytest

from tests.unit.references import manual


@pytest.mark.parametrize("words", [".beanpole is a folder", "./.beanpole)", "'mail' is a tube"])
def test_words_at_the_beginning_of_a_line_are_no_request(words: str) -> None:
    lines = manual.page(ArgumentParser("beanpole", description=words), 1, "a queue").splitlines()
    assert words not in lines
    assert rf"\&{words}" in lines


@pytest.mark.parametrize("columns", [40, 80, 81, 100, 132])
def test_the_pages_have_no_requests_that_roff_does_not_know(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which words begin a line depends on the width of the terminal."""
    monkeypatch.setenv("COLUMNS", str(columns))
    pages = manual.pages()
    assert sorted(map(str, pages)) == ["man1/beanpole.1", "man8/beanpoled.8"]
    for text in pages.values():
        found = set(re.findall(r"^[.'][^ \n]*", text, re.MULTILINE))
        assert {".TH", ".SH", ".TP"} <= found <= manual.REQUESTS
