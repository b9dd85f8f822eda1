"""The code in docs/adding-a-protocol.md is that of the toy protocol and of the tables."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCES = (
    "tests/toy/frontend.py",
    "tests/toy/space.py",
    "node/beanpoled/frontends/table.py",
    "node/beanpoled/config/protocols.py",
)


def code_lines(text: str) -> set[str]:
    """Return the lines of a text without indentation and trailing comments."""
    return {line.split("  # ")[0].strip() for line in text.splitlines()}


def test_the_code_of_the_page_is_the_code_of_the_toy() -> None:
    page = (ROOT / "docs" / "adding-a-protocol.md").read_text()
    told = code_lines("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)))
    real = code_lines("\n".join((ROOT / source).read_text() for source in SOURCES))
    assert len(told) > 15
    assert told - real <= {"..."}


def test_the_names_that_the_page_tells_exist() -> None:
    page = (ROOT / "docs" / "adding-a-protocol.md").read_text()
    paths = re.findall(r"`((?:tests|node|cluster)/[a-z_/]+(?:\.py)?)`", page)
    assert len(paths) > 5
    for path in paths:
        assert (ROOT / path).exists(), path
