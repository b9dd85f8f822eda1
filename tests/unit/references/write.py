"""Write the generated pages of docs/ again: `make references`.

    .venv/bin/python -m tests.unit.references.write

`test_references.py` compares the committed pages with the code.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from beanpoled import cli, main
from tests.unit.references import commands, metrics

DOCS: Final = Path(__file__).resolve().parents[3] / "docs"
PAGES: Final[dict[str, Callable[[], str]]] = {
    "commands.md": lambda: commands.page(cli.parser(), main.parser()),
    "metrics.md": metrics.page,
}


def write() -> None:
    """Write all pages."""
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())


if __name__ == "__main__":
    write()
