"""A job of `beanpole work` whose body finds no temporary file: real limits of the system."""

import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from beanpole.client.worker import Task
from beanpoled.cli import work


@contextmanager
def limited(kind: int, limit: int) -> Iterator[None]:
    """Lower a limit of this process."""
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


def failure(body: bytes = b"body") -> Exception | None:
    """Return the failure of a job."""
    try:
        work._run_command(["cat"], Task(7, body, "mail", 1))
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("kind", [resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE])
def test_a_limit_that_leaves_no_temporary_file_fails_the_job_alone(
    monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    """The search for a directory ends with ENOENT, which was taken for that of the command."""
    monkeypatch.setattr(tempfile, "tempdir", None)  # no directory was found before
    with limited(kind, 0):
        error = failure()
    assert isinstance(error, work.CommandFailed)
    assert "temporary file" in str(error)


def test_a_temporary_directory_that_is_gone_fails_the_job_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    error = failure()
    assert isinstance(error, work.CommandFailed)
    assert "TMPDIR" in str(error)


@pytest.mark.parametrize("size", [100, 1_000_000])
def test_a_limit_below_the_body_fails_the_job_alone(size: int) -> None:
    """The probe of `tempfile` fits, and a small body would wait in a buffer until close()."""
    with limited(resource.RLIMIT_FSIZE, 50):
        error = failure(bytes(size))
    assert isinstance(error, work.CommandFailed)
    assert "temporary file" in str(error)
