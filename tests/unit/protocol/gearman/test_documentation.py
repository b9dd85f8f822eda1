"""docs/protocols/gearman.md is complete: every packet, every line of text, every limit."""

from pathlib import Path

import pytest

from beanpole import constants
from beanpole.protocol.gearman import admin
from beanpole.protocol.gearman import packets as p

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "protocols" / "gearman.md").read_text()
MIB = 1024 * 1024


def section(heading: str) -> str:
    """Return the text below a heading."""
    return PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def test_every_request_has_its_row() -> None:
    told = section("Packets")
    assert not [name for name in p.NAMES.values() if f"`{name}`" not in told]


def test_every_line_of_text_has_its_row() -> None:
    rows = [row.split("`")[1].split() for row in section("Text").splitlines() if "| `" in row]
    for row in rows:
        line = " ".join("x" if word.strip("[]").isupper() else word for word in row)
        for word in ("[x]", "[graceful]"):
            line = line.replace(word, "")
        assert admin.read(line.strip().encode())[0] != admin.WRONG, line
    assert len(rows) == 10


def test_requests_of_no_client_are_told() -> None:
    wrong = sorted(set(range(1, p.TYPE_MAX + 1)) - set(p.REQUEST_ARGUMENTS))
    assert f"({', '.join(map(str, wrong))})" in section("Bytes")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 MiB (`JOB_SIZE_MAX_BYTES`", constants.JOB_SIZE_MAX_BYTES / MIB),
        ("1 MiB (`RESULT_MAX_BYTES`", constants.RESULT_MAX_BYTES / MIB),
        ("63 bytes together", constants.PROGRESS_MAX_BYTES - 1),
        ("512 bytes each", p.FUNCTION_MAX_BYTES),
        ("64 bytes |", p.UNIQUE_MAX_BYTES),
        ("128 bytes |", p.CLIENT_ID_MAX_BYTES),
        ("64 MiB (`PACKET_SKIPPED_MAX_BYTES`", p.PACKET_SKIPPED_MAX_BYTES / MIB),
        ("8 KiB (`LINE_MAX_BYTES`", p.LINE_MAX_BYTES / 1024),
        ("1,024 (`WATCHED_TUBES_MAX`", constants.WATCHED_TUBES_MAX),
        ("65,536 (`ATTACHED_MAX`", constants.ATTACHED_MAX),
        ("16,384 (`CLIENTS_OF_JOB_MAX`", constants.CLIENTS_OF_JOB_MAX),
        ("64 (`SUBMITS_OF_JOB_MAX`", constants.SUBMITS_OF_JOB_MAX),
    ],
)
def test_limits_are_as_they_are(text: str, value: float) -> None:
    assert text in section("Limits")
    assert float(text.split()[0].replace(",", "")) == value
