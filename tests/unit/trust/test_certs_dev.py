"""`beanpole certs dev`: permissions of keys, and what a failed call leaves."""

import errno
import os
import ssl
from pathlib import Path

import pytest

from beanpoled.cli import main

Capture = pytest.CaptureFixture[str]


def dev(place: Path, *line: str) -> int:
    return main(["certs", "dev", "--to", str(place), "--nodes", "a", *line])


def contents(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in place.iterdir() if path.name != ".ca.srl"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    place = tmp_path_factory.mktemp("made")
    assert dev(place) == 0
    return contents(place)


@pytest.fixture
def place(made: dict[str, bytes], tmp_path: Path) -> Path:
    for name, data in made.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def test_a_key_that_is_made_again_is_for_its_owner_only(place: Path) -> None:
    elsewhere = place / "elsewhere"
    elsewhere.write_text("kept")
    (place / "a.key").chmod(0o644)
    (place / "client.key").unlink()
    (place / "client.key").symlink_to(elsewhere)
    assert dev(place) == 0
    for name in ("a.key", "client.key"):
        assert (place / name).lstat().st_mode & 0o777 == 0o600
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(place / name.replace("key", "pem"), place / name)
    assert elsewhere.read_text() == "kept"


@pytest.mark.parametrize(("missing", "there"), [("ca.key", "ca.pem"), ("ca.pem", "ca.key")])
def test_a_ca_without_its_other_half_is_kept(
    place: Path, missing: str, there: str, capsys: Capture
) -> None:
    (place / missing).unlink()
    before = contents(place)
    assert dev(place) == 2
    words = f"{place / missing} is missing, and {place / there} is there"
    assert words in capsys.readouterr().err
    assert contents(place) == before


def test_a_failed_call_leaves_everything_as_it_was(place: Path, capsys: Capture) -> None:
    (place / "ca.key").write_text("no key")
    before = contents(place)
    assert dev(place) == 2
    assert "openssl x509 failed" in capsys.readouterr().err
    assert contents(place) == before


@pytest.mark.parametrize("has_ca", [False, True])
def test_an_openssl_that_writes_nothing_replaces_no_file(
    has_ca: bool,
    place: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    """openssl 3.0 makes empty files on a full disk, and ends with status 0."""
    if not has_ca:
        for name in ("ca.pem", "ca.key"):
            (place / name).unlink()
    before = contents(place)
    programs = tmp_path_factory.mktemp("programs")
    fake = programs / "openssl"
    fake.write_text(
        '#!/bin/sh\nfor word in "$@"; do case $word in */.*) : > "$word";; esac; done\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    assert dev(place) == 2
    assert "openssl genpkey failed" in capsys.readouterr().err
    assert contents(place) == before


@pytest.mark.parametrize("files", [0, 1, 4])
@pytest.mark.parametrize("has_ca", [False, True])
def test_a_full_disk_leaves_everything_as_it_was(
    has_ca: bool, files: int, place: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    if not has_ca:
        for name in ("ca.pem", "ca.key"):
            (place / name).unlink()
    before = contents(place)
    left = files

    def sync(_: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", sync)
    assert dev(place) == 3
    assert capfd.readouterr().err == f"beanpole: {place}: the disk is full\n"
    assert contents(place) == before


def test_a_folder_in_place_of_a_file_leaves_everything_as_it_was(
    place: Path, capsys: Capture
) -> None:
    (place / "client.pem").unlink()
    (place / "client.pem").mkdir()
    before = {name: (place / name).read_bytes() for name in ("a.key", "a.pem", "client.key")}
    assert dev(place) == 2
    assert f"{place / 'client.pem'} is a folder" in capsys.readouterr().err
    assert {name: (place / name).read_bytes() for name in before} == before


def test_a_zone_cannot_be_in_a_certificate(place: Path, capsys: Capture) -> None:
    before = contents(place)
    assert dev(place, "--hosts", "fe80::1%eth0") == 2
    assert "--hosts: 'fe80::1%eth0' is not allowed" in capsys.readouterr().err
    assert contents(place) == before


def test_a_file_is_no_folder(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").touch()
    for wrong in (tmp_path / "file", tmp_path / "file" / "below"):
        assert dev(wrong) == 2
        assert f"--to {wrong}: it must be a folder" in capsys.readouterr().err
