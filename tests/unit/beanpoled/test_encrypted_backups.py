"""Encrypted backups: written, read and restored with keys of each kind; rejected files.

The node is a double that sends the image of the recorded backup. The `age` program made
tests/fixtures/backup-1.age: reading that file shows that the formats are the same.
"""

import argparse
import io
import json
import os
import random
import struct
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import pyrage
import pytest

from beanpole.errors import Damaged
from beanpoled import cli
from beanpoled.cli import backup as command
from beanpoled.cli import backup_files
from beanpoled.disk import age_keys
from beanpoled.disk.age_streams import Decrypting, Encrypting
from beanpoled.disk.backups import read_whole
from tests.unit.beanpoled.backup_scene import Image
from tests.unit.releases.backup import FIXTURE

DIGEST = "c5323f2b46dd6734"
BODY = b"body 3"  # of a job in the backup
BY_AGE = FIXTURE.with_suffix(".age")
KEY_OF_AGE = FIXTURE.with_suffix(".age-key")
PASSPHRASE = "correct horse"


@pytest.fixture(autouse=True)
def node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "Stream", Image)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return identity_file(tmp_path / "key", pyrage.x25519.Identity.generate())


def identity_file(path: Path, identity: pyrage.x25519.Identity) -> Path:
    path.write_text(f"# public key: {identity.to_public()}\n{identity}\n")
    return path


def recipient(key: Path) -> str:
    """Return the public key in the comment of an identity file."""
    return key.read_text().splitlines()[0].rpartition(" ")[2]


def backup(to: Path, *words: str) -> int:
    return cli.main(["backup", "--addr", "127.0.0.1:1", "--to", str(to), *words])


def verify(path: Path, *words: str) -> int:
    return cli.main(["backup", "verify", str(path), *words])


def encrypted(data: bytes, key: Path, path: Path) -> Path:
    to = pyrage.x25519.Recipient.from_str(recipient(key))
    path.write_bytes(pyrage.encrypt(data, [to]))
    return path


def test_a_backup_is_written_shown_and_restored_with_the_key(
    tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "backup.age"
    other = identity_file(tmp_path / "other", pyrage.x25519.Identity.generate())
    (tmp_path / "recipients").write_text(f"# of the vault\n\n{recipient(other)}\n")
    to = ("--encrypt-to", recipient(key), "--recipients-file", str(tmp_path / "recipients"))
    assert backup(path, *to, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["encrypted"] is True
    assert told["bytes"] == path.stat().st_size
    assert path.stat().st_mode & 0o077 == 0
    assert BODY in FIXTURE.read_bytes()
    assert BODY not in path.read_bytes()
    for one in (key, other):
        assert verify(path, "--load", "--identity", str(one)) == 0
        assert f"digest {DIGEST}: right" in capsys.readouterr().out
    assert cli.main(["backup", "show", str(path), "--identity", str(key)]) == 0
    assert "encrypted   yes" in capsys.readouterr().out
    directories = [str(tmp_path / name) for name in ("a", "b")]
    words = ["restore", str(path), "--members", "x,y", "--identity", str(key), "--to"]
    before = set(os.listdir(tmp_path))
    assert cli.main([*words, *directories]) == 0
    assert set(os.listdir(tmp_path)) - before == {"a", "b"}
    assert "7 jobs restored" in capsys.readouterr().out


def test_what_the_age_program_encrypted_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(BY_AGE, "--load", "--identity", str(KEY_OF_AGE)) == 0
    assert f"digest {DIGEST}: right" in capsys.readouterr().out


@pytest.mark.parametrize("way", ["verify", "show"])
def test_options_in_front_of_the_command_count(
    way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--identity", str(KEY_OF_AGE), "--json"]
    assert cli.main(["backup", *words, way, str(BY_AGE)]) == 0
    assert json.loads(capsys.readouterr().out)["encrypted" if way == "show" else "right"] is True
    other = identity_file(tmp_path / "other", pyrage.x25519.Identity.generate())
    assert cli.main(["backup", *words, way, str(BY_AGE), "--identity", str(other)]) == 0


def test_an_armored_file_is_read(tmp_path: Path, key: Path) -> None:
    to = pyrage.x25519.Recipient.from_str(recipient(key))
    armored = tmp_path / "armored"
    armored.write_bytes(pyrage.encrypt(FIXTURE.read_bytes(), [to], armored=True))
    assert verify(armored, "--load", "--identity", str(key)) == 0


@pytest.mark.slow  # a passphrase takes a second of processor time, on purpose
def test_a_key_with_a_passphrase(
    tmp_path: Path,
    key: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = encrypted(FIXTURE.read_bytes(), key, tmp_path / "backup")
    locked = tmp_path / "locked"
    locked.write_bytes(pyrage.passphrase.encrypt(key.read_bytes(), PASSPHRASE))
    words = ("--identity", str(locked))
    assert verify(path, *words) == 2
    assert "--passphrase-file FILE names its passphrase" in capsys.readouterr().err
    file = tmp_path / "passphrase"
    file.write_text(PASSPHRASE + "\n")
    file.chmod(0o600)
    assert verify(path, *words, "--passphrase-file", str(file)) == 0
    file.write_text(f"\ufeff{PASSPHRASE} \n")
    assert verify(path, *words, "--passphrase-file", str(file)) == 2
    told = capsys.readouterr().err
    odd = "the passphrase begins with a byte order mark and ends with a blank, which is part of it"
    assert told.endswith(f"; {odd}\n") and PASSPHRASE not in told
    file.chmod(0o644)
    assert verify(path, *words, "--passphrase-file", str(file)) == 2
    assert "others must not read" in capsys.readouterr().err
    monkeypatch.setenv("BEANPOLE_BACKUP_PASSPHRASE", PASSPHRASE)
    assert verify(path, *words) == 0
    monkeypatch.setenv("BEANPOLE_BACKUP_PASSPHRASE", "wrong")
    assert verify(path, *words) == 2
    assert "the passphrase does not open it" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_file_of_a_passphrase_is_named(
    text: str, tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The answer was that --passphrase-file names the passphrase, although it was given."""
    locked = tmp_path / "locked"
    locked.write_bytes(age_keys.MAGIC)
    file = tmp_path / "passphrase"
    file.write_text(text)
    file.chmod(0o600)
    assert verify(BY_AGE, "--identity", str(locked), "--passphrase-file", str(file)) == 2
    told = f"--identity {locked} is encrypted: --passphrase-file = '{file}' is empty"
    assert capsys.readouterr().err == f"beanpole: {told}\n"


@pytest.mark.parametrize("secret", ["pfx\udcff\udcfe", "pfx\udcc3"])
def test_a_passphrase_that_is_no_text_is_named_and_not_shown(
    secret: str,
    tmp_path: Path,
    key: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The line had the part that is no text, and not the name of the variable."""
    locked = encrypted(b"a key", key, tmp_path / "locked")
    monkeypatch.setenv("BEANPOLE_BACKUP_PASSPHRASE", secret)
    assert verify(BY_AGE, "--identity", str(locked)) == 2
    assert capsys.readouterr().err == (
        "beanpole: BEANPOLE_BACKUP_PASSPHRASE is not allowed: it is no text in UTF-8\n"
    )


def test_the_bytes_of_a_passphrase_count_in_every_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the encoding is ASCII, as with LC_ALL=POSIX, Python reads other bytes as surrogates."""
    found: list[str] = []
    monkeypatch.setattr(age_keys, "identities", lambda _, passphrase: found.append(passphrase))
    arguments = argparse.Namespace(identity=["key"], passphrase_file=None)
    for given in ("caf\udcc3\udca9", "caf\u00e9", ""):
        backup_files.identities(arguments, {"BEANPOLE_BACKUP_PASSPHRASE": given})
    backup_files.identities(arguments, {})
    assert found == ["caf\u00e9", "caf\u00e9", "", ""]


def ssh_rsa(path: Path) -> str:
    """Write a private key of SSH to a file; return its public key."""
    subprocess.run(
        ["openssl", "genrsa", "-traditional", "-out", str(path), "2048"],
        check=True,
        capture_output=True,
    )
    told = subprocess.run(
        ["openssl", "rsa", "-in", str(path), "-noout", "-modulus"],
        check=True,
        capture_output=True,
        text=True,
    )
    modulus = b"\0" + bytes.fromhex(told.stdout.strip().partition("=")[2])
    parts = (b"ssh-rsa", (65537).to_bytes(3, "big"), modulus)
    blob = b"".join(struct.pack(">I", len(part)) + part for part in parts)
    return f"ssh-rsa {b64encode(blob).decode()} a comment"


def test_keys_of_ssh(tmp_path: Path) -> None:
    public = ssh_rsa(tmp_path / "id_rsa")
    path = tmp_path / "backup"
    assert backup(path, "--encrypt-to", public) == 0
    assert verify(path, "--identity", str(tmp_path / "id_rsa")) == 0


def test_without_its_key_it_is_not_read(
    tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = identity_file(tmp_path / "other", pyrage.x25519.Identity.generate())
    path = encrypted(FIXTURE.read_bytes(), key, tmp_path / "backup")
    assert verify(path) == 2
    assert "is encrypted: --identity KEYFILE names the key" in capsys.readouterr().err
    assert verify(path, "--identity", str(other)) == 2
    assert "no --identity is a recipient of it" in capsys.readouterr().err
    path.write_bytes(b"age-encryption.org/v1\n-> scrypt bUpDwtMNpJo8oVSJq6Uq0Q 18\n" + bytes(64))
    assert verify(path, "--identity", str(key)) == 2
    assert "is encrypted with a passphrase" in capsys.readouterr().err


def test_what_has_changed_is_refused(
    tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = encrypted(FIXTURE.read_bytes(), key, tmp_path / "backup")
    data = path.read_bytes()
    payload = data.index(b"\n--- ")
    dice = random.Random(20)
    changed = tmp_path / "changed"
    words = ("--identity", str(key))
    made = [data[:-1], data[:payload], data + b"x"] + [
        data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]
        for place in dice.sample(range(payload, len(data)), 20)
    ]
    for number, one in enumerate(made):
        changed.write_bytes(one)
        assert verify(changed, *words) == 1, number
        assert f"beanpole: {changed} cannot be decrypted" in capsys.readouterr().err
    encrypted(FIXTURE.read_bytes()[:-1], key, changed)  # validly encrypted, but cut off
    assert verify(changed, *words) == 1
    assert "the backup is cut off" in capsys.readouterr().err
    assert cli.main(["restore", str(changed), "--to", str(tmp_path / "a"), *words]) in (2, 3)
    assert not (tmp_path / "a").exists()


def test_a_disk_that_gives_other_bytes_leaves_no_backup(
    tmp_path: Path,
    key: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "backup"
    words = ("--encrypt-to", recipient(key))

    def spoil(descriptor: int) -> None:
        os.pwrite(descriptor, b"\0", os.fstat(descriptor).st_size - 20)

    monkeypatch.setattr(os, "fsync", spoil)
    assert backup(path, *words) == 3
    assert "the disk does not give the bytes that were written" in capsys.readouterr().err
    assert list(tmp_path.glob("backup*")) == []
    monkeypatch.undo()
    monkeypatch.setattr(command, "Stream", Image)
    assert backup(path, *words) == 0


def test_an_identity_has_it_decrypted_before_it_gets_its_name(
    tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def noted(stream: Any, name: str, moved: Any) -> Any:
        read.append(name)
        return read_whole(stream, name, moved)

    monkeypatch.setattr(command, "read_whole", noted)
    words = ("--encrypt-to", recipient(key))
    assert backup(tmp_path / "a", *words) == 0
    assert read == []
    assert backup(tmp_path / "b", *words, "--identity", str(key)) == 0
    assert read == [str(tmp_path / "b")]


def test_a_full_disk_ends_it_with_that_reason(
    tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full = Path("/dev/full")
    to = pyrage.x25519.Recipient.from_str(recipient(key))
    with (
        full.open("wb", buffering=0) as target,
        pytest.raises(OSError, match="No space left"),
        Encrypting(target, [to]) as sealed,
    ):
        for _ in range(64):
            sealed.write(bytes(1 << 20))


def test_bytes_of_any_size_go_through_both_ways(key: Path) -> None:
    identity = pyrage.x25519.Identity.from_str(key.read_text().splitlines()[1])
    dice = random.Random(41)
    data = dice.randbytes(3 << 20)
    target = io.BytesIO()
    with Encrypting(target, [identity.to_public()]) as sealed:
        place = 0
        while place < len(data):
            size = dice.choice((1, 17, 65_535, 65_536, 500_000))
            sealed.write(data[place : place + size])
            place += size
    assert sealed.written == len(target.getvalue())
    assert pyrage.decrypt(target.getvalue(), [identity]) == data
    target.seek(0)
    with Decrypting(target, "FILE", [identity]) as plain:
        made = bytearray()
        while piece := plain.read(dice.choice((1, 17, 65_536, 500_000))):
            made += piece
    assert made == data


def test_a_writer_that_gives_up_leaves_a_cut_file(key: Path) -> None:
    identity = pyrage.x25519.Identity.from_str(key.read_text().splitlines()[1])
    target = io.BytesIO()
    with pytest.raises(KeyError), Encrypting(target, [identity.to_public()]) as sealed:
        sealed.write(bytes(200_000))
        raise KeyError
    target.seek(0)
    with Decrypting(target, "FILE", [identity]) as plain, pytest.raises(Damaged):
        plain.read(1 << 20)


def test_a_reader_that_gives_up_ends_the_thread(key: Path) -> None:
    identity = pyrage.x25519.Identity.from_str(key.read_text().splitlines()[1])
    source = io.BytesIO(pyrage.encrypt(bytes(8 << 20), [identity.to_public()]))
    with Decrypting(source, "FILE", [identity]) as plain:
        assert plain.read(1) == b"\0"
    assert not plain._thread.is_alive()
    assert source.tell() < 8 << 20


def test_a_source_that_cannot_be_read_is_no_damage(key: Path) -> None:
    identity = pyrage.x25519.Identity.from_str(key.read_text().splitlines()[1])

    class Broken:
        def read(self, _: int, /) -> bytes:
            raise OSError(5, "Input/output error")

    with (
        Decrypting(Broken(), "FILE", [identity]) as plain,
        pytest.raises(OSError, match="Input/output error"),
    ):
        plain.read(1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--encrypt-to", "age1wrong"], "'age1wrong' is not allowed: invalid Bech32"),
        (["--encrypt-to", "bob"], "'bob' is no recipient: it must be age1..., ssh-ed25519"),
        (["--encrypt-to", "{secret}"], "has an identity, which is secret"),
        (["--recipients-file", "{empty}"], "there is no recipient in it"),
        (["--recipients-file", "{key}"], "line 2 has an identity"),
        (["--recipients-file", "/none"], "cannot be read: No such file"),
        (["--identity", "{key}"], "--encrypt-to or --recipients-file is missing"),
        (["--passphrase-file", "{key}"], "has no effect without --identity"),
        (["--encrypt-to", "{public}", "--identity", "{empty}"], "there is no identity in it"),
        (["--encrypt-to", "{public}", "--identity", "{recipients}"], "line 1 is no identity"),
        (["--encrypt-to", "{public}", "--identity", "{other}"], "is one of the recipients"),
        (["--recipients-file", "{many}"], "65 recipients are not allowed: at most 64"),
    ],
)
def test_wrong_words_are_refused_and_no_secret_is_shown(
    tmp_path: Path,
    key: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    secret = key.read_text().splitlines()[1]
    files = {name: tmp_path / name for name in ("empty", "recipients", "many")}
    files["empty"].write_text("# nothing\n")
    files["recipients"].write_text(recipient(key) + "\n")
    files["many"].write_text((recipient(key) + "\n") * 65)
    other = identity_file(tmp_path / "other", pyrage.x25519.Identity.generate())
    names = {**files, "key": key, "other": other, "secret": secret, "public": recipient(key)}
    assert backup(tmp_path / "to", *(word.format(**names) for word in words)) == 2
    said = capsys.readouterr().err
    assert message in said
    assert secret not in said
    assert not list(tmp_path.glob("to*"))


def test_without_the_library_the_command_says_how_it_is_installed(
    tmp_path: Path,
    key: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyrage", None)
    assert backup(tmp_path / "to", "--encrypt-to", recipient(key)) == 2
    assert "pip install 'BEANPOLE.whl[backup]'" in capsys.readouterr().err
    assert verify(BY_AGE, "--identity", str(KEY_OF_AGE)) == 2
    assert "pip install 'BEANPOLE.whl[backup]'" in capsys.readouterr().err
    assert backup(tmp_path / "plain") == 0
