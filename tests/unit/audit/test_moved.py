"""The file of the audit log while another program moves, removes or replaces it."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beanpoled.audit.entry import Entry
from beanpoled.audit.log import NAME, AuditLog

ENTRY = Entry(1_700_000_000_123_456, "10.0.0.1", "", "", "Queue/Kick", {"job_ids": [1]}, "OK", 1500)


@pytest.fixture
def audit(tmp_path: Path) -> Iterator[AuditLog]:
    lines: list[str] = []
    log = AuditLog(str(tmp_path), "a", lines.append)
    yield log
    log.close()
    assert not lines


def move(path: Path) -> None:
    path.rename(path.with_suffix(".old"))


def replace(path: Path) -> None:
    """As logrotate does with `create`."""
    move(path)
    path.touch(0o600)


@pytest.mark.parametrize("do", [move, Path.unlink, replace])
def test_later_lines_go_to_the_file_of_the_name(
    tmp_path: Path, audit: AuditLog, do: Callable[[Path], None]
) -> None:
    path = tmp_path / NAME
    audit.add(ENTRY)
    (first,) = audit.page(0).lines
    do(path)
    audit.add(ENTRY._replace(method="Queue/Delete"))
    (second,) = audit.page(json.loads(first)["id"]).lines
    assert json.loads(second)["method"] == "Queue/Delete"
    assert path.read_bytes() == second + b"\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert audit.lost == 0
