"""Tables fit their terminal and keep the most important columns."""

import os
import pty
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from pathlib import Path

import pytest

from beanpole.pb import admin_pb2, node_pb2
from beanpoled.cli.columns import Column, table, terminal_chars
from beanpoled.cli.status import as_text

COLUMNS = (
    Column("id", 4, False),
    Column("much", 10, True, 2),
    Column("less", 10, True, 1),
    Column("words", 8, False),
)
ROWS = [("a", 1, 2, "of any length")]
KEPT = ("ready", "reserved", "delayed", "buried", "state")


def test_columns_go_in_their_order_and_never_those_that_must_stay() -> None:
    assert table(COLUMNS, ROWS, None)[1] == []
    assert table(COLUMNS, ROWS, 34)[1] == []
    lines, dropped = table(COLUMNS, ROWS, 33)
    assert dropped == ["much"]
    assert lines == ["id         less words", "a             2 of any length"]
    assert table(COLUMNS, ROWS, 12) == (["id   words", "a    of any length"], ["much", "less"])


def reply() -> admin_pb2.StatusReply:
    node = node_pb2.Node(id="n0", reachable=True, serving=True, version="0.4", state="serving")
    node.durability = "sync"
    node.protocols.add(name="beanstalk")
    return admin_pb2.StatusReply(cluster="dev", nodes=[node, node_pb2.Node(id="n1")])


@pytest.mark.parametrize("chars", [60, 72, 80, 100, 120])
def test_status_shows_jobs_and_states_in_every_terminal(chars: int) -> None:
    lines = as_text(reply(), chars).splitlines()
    assert all(title in lines[1].split() for title in KEPT)
    assert all(len(line) <= chars for line in lines if line.startswith(("n0", "node", "beanst")))
    assert ("a wider terminal" in lines[-1]) == (chars < 114)


def test_a_table_without_room_is_folded_and_each_part_names_its_rows() -> None:
    columns = (Column("id", 9, False), Column("one", 9), Column("two", 9), Column("end", 4, False))
    lines, dropped = table(columns, [("a", 1, 20000, "of any length")], 14)
    assert dropped == []
    assert lines == ["id one   two", "a    1 20000", "id end", "a  of any length"]
    assert table(columns, [], 1)[0] == ["id one", "id two", "id end"]


@pytest.mark.parametrize("chars", [30, 40, 50])
def test_status_fits_a_narrow_terminal(chars: int) -> None:
    lines = as_text(reply(), chars).splitlines()
    begins = ("n0", "node", "protocol", "beanst")
    assert all(len(line) <= chars for line in lines if line.startswith(begins))
    words = " ".join(line for line in lines if line.startswith("node")).split()
    assert set(KEPT) <= set(words)


def test_what_is_no_terminal_has_all_columns() -> None:
    whole = as_text(reply())
    assert "machine" in whole and "commit" in whole and "wider" not in whole


def test_the_width_is_that_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a real terminal of 80 characters, and a pipe."""
    monkeypatch.delenv("COLUMNS", raising=False)
    leader, follower = pty.openpty()
    ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    reading, writing = os.pipe()
    for number, wanted in ((follower, 80), (writing, None)):
        with open(number, "w") as output, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", output)
            patch.setattr(sys, "__stdout__", output)
            assert terminal_chars() == wanted
    os.close(reading)
    os.close(leader)


def test_make_up_says_that_it_installs(tmp_path: Path) -> None:
    """Python and the packages are doubles; make and the Makefile are real."""
    root = Path(__file__).resolve().parents[3]
    for name in ("Makefile", "pyproject.toml"):
        (tmp_path / name).write_bytes((root / name).read_bytes())
    fake = tmp_path / "python"
    fake.write_text(
        '#!/bin/sh\ncase "$2" in\n'
        "venv) mkdir -p .venv/bin; cp python .venv/bin/python;"
        " printf '#!/bin/sh\\necho up' > .venv/bin/beanpole; chmod +x .venv/bin/beanpole;;\n"
        "pip) echo pip;;\nesac\n"
    )
    fake.chmod(0o755)
    command = ["make", "--silent", "up", f"PYTHON={fake}"]
    # Do not run as a part of the make that runs the tests.
    alone = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}

    def run() -> list[str]:
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=True, env=alone
        )
        return done.stdout.splitlines()

    first, *others = run()
    assert first.startswith("installing what nodes need into .venv, once")
    assert others == ["pip", "installed", "up"]
    assert run() == ["up"]
