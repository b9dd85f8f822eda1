"""Certificates of a development CA, and a stream with its client."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from beanpoled.cli.certs import make_ca, make_certificate
from tests.unit.trust.pairs import Pair


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("certificates")
    make_ca(made, "1")
    make_certificate(made, "a", ["a"], "1")
    return made


@pytest.fixture
def pair(folder: Path) -> Iterator[Pair]:
    loop = asyncio.new_event_loop()
    yield Pair(folder, loop)
    loop.close()
