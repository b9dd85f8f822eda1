"""Compile the forgetting file system once; the tests fail on a machine that cannot mount it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos import power

STRICT = ("-std=gnu11", "-Wall", "-Wextra", "-Werror")


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return power.build(tmp_path_factory.mktemp("forgetful"), *STRICT)


@pytest.fixture
def disk(program: Path, tmp_path: Path) -> Iterator[power.ForgetfulDisk]:
    with power.mounted(program, tmp_path / "disk") as made:
        yield made
