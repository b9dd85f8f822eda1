"""A node that logs errors alone, and is told to read its configuration again."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from beanpoled.host.seam import WARNING
from beanpoled.supervision import Supervision
from tests.unit.beanpoled.test_settings import Scene

QUIET = "log_level = 'error'\n"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (QUIET, "reloaded: no setting has changed"),
        (QUIET + "connections_max = 500\n", "reloaded: connections_max is 500"),
        (QUIET + "jobs_max = 7\n", "with a restart: jobs_max"),
        (QUIET + "conection = 3\n", "not reloaded: "),
        ("connections_max = 600\n", "reloaded: connections_max is 600"),
        ("", "reloaded: log_level is info, was error"),
        ("log_level = 'debug'\n", "reloaded: log_level is debug, was error"),
    ],
)
def test_the_outcome_is_logged_at_any_level(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, words: str
) -> None:
    scene = Scene(tmp_path, QUIET)
    scene.write(more)
    scene.reloader.reload()
    assert words in capsys.readouterr().err


def test_the_level_of_other_lines_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene(tmp_path, QUIET)
    scene.reloader.reload()
    capsys.readouterr()
    scene.lines.write("another line")
    assert not capsys.readouterr().err


def test_the_outcome_is_logged_where_the_level_rises(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = Scene(tmp_path)
    scene.write(QUIET + "jobs_max = 7\n")
    scene.reloader.reload()
    told = capsys.readouterr().err
    assert "log_level is error, was info" in told and "with a restart: jobs_max" in told


def test_the_outcome_for_certificates_is_logged_at_any_level(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = Scene(tmp_path, QUIET)

    def refresh(is_asked: bool) -> list[str]:
        assert is_asked
        scene.lines.write("tls_certificate_file is not used", WARNING)
        return []

    trust = SimpleNamespace(refresh=refresh, end_revoked=lambda: None, refused_files=dict)
    host = SimpleNamespace(trust=trust, spawn=lambda _: None, log=scene.lines.write)
    node = SimpleNamespace(condition=None, stopping=SimpleNamespace())
    its: Any = (node, host, scene.reloader)
    Supervision(*its).reload()
    assert "tls_certificate_file is not used" in capsys.readouterr().err
