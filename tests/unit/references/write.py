"""Write again what is made from the code, pages of docs/ and a module: `make references`.

    .venv/bin/python -m tests.unit.references.write

`test_references.py` compares the committed files with the code.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from beanpoled import cli, main
from tests.unit.references import blocking, commands, metrics

ROOT: Final = Path(__file__).resolve().parents[3]
DOCS: Final = ROOT / "docs"
FILES: Final[dict[str, Callable[[], str]]] = {
    "docs/commands.md": lambda: commands.page(cli.parser(), main.parser()),
    "docs/metrics.md": metrics.page,
    "cluster/beanpole/client/blocking_commands.py": blocking.module,
}


def write() -> None:
    """Write all files."""
    for name, text in FILES.items():
        (ROOT / name).write_text(text())


if __name__ == "__main__":
    write()
