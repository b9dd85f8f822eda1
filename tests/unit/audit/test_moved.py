"""The file of the audit log while another program moves, removes or replaces it."""

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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


def test_lines_go_to_the_open_file_while_its_name_cannot_be_looked_up(
    tmp_path: Path, audit: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit.add(ENTRY)
    assert audit.flush()
    stat, looks = os.stat, []

    def fail(path: Any, *of: Any, **named: Any) -> os.stat_result:
        if path != str(tmp_path / NAME):
            return stat(path, *of, **named)
        looks.append(path)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", fail)
        audit.add(ENTRY._replace(method="Queue/Delete"))
        assert audit.flush()
    assert looks
    methods = [json.loads(line)["method"] for line in audit.page(0).lines]
    assert methods == ["Queue/Kick", "Queue/Delete"]
    assert audit.lost == 0
