"""Programs decide by the reasons of errors: proto/README.md names each one of the gRPC services."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
SERVICES: Final = ROOT / "node" / "beanpoled" / "rpc"
REASON: Final = re.compile(r"[A-Z]+(_[A-Z]+)+")


def reasons(tree: ast.AST) -> Iterator[str]:
    """Yield the reasons in a module, without those of requests that are wrong.

    These have a field, which says more; the page names some as examples.
    """
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    wrong = {
        argument
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "CallRefused"
        for argument in call.args
    }
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    for constant in constants:
        value = constant.value
        if constant not in wrong and isinstance(value, str) and REASON.fullmatch(value):
            yield value


def test_the_page_names_every_reason() -> None:
    found = {
        reason for path in SERVICES.glob("*.py") for reason in reasons(ast.parse(path.read_text()))
    }
    assert {"NOT_LEADER", "NO_POLICY", "TOO_MANY_USERS"} <= found
    page = (ROOT / "proto" / "README.md").read_text()
    assert not sorted(reason for reason in found if f"`{reason}`" not in page)
