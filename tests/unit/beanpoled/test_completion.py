"""`beanpole completion`: a real bash completes with it; all shells get every command."""

import os
import subprocess
from pathlib import Path

import pytest

from beanpoled.cli import main
from beanpoled.cli.completion import SHELLS

# Does the same as bash for a Tab after the words.
TAB = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
$(complete -p beanpole | sed 's/.*-F \\([^ ]*\\).*/\\1/') beanpole "${!#}" ""
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", "bash"]) == 0
    path = tmp_path / "beanpole.bash"
    path.write_text(capsys.readouterr().out)
    return path


def tab(script: Path, *words: str) -> list[str]:
    done = subprocess.run(
        ["bash", "-c", TAB, "bash", script, "beanpole", *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=script.parent,
        env={**os.environ, "LC_ALL": "C"},  # bash warns of a locale that is not there
    )
    assert not done.stderr
    return done.stdout.split()


def test_bash_completes_commands_options_choices_and_folders(script: Path) -> None:
    (script.parent / "folder").mkdir()
    (script.parent / "file").touch()
    assert tab(script, "ali") == ["alias"]
    assert sorted(tab(script, "alias", "")) == ["list", "remove", "set"]
    assert tab(script, "top", "--so") == ["--sort"]
    assert tab(script, "top", "--sort", "a") == ["age"]
    assert tab(script, "status", "--dir", "f") == ["folder"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("backup verify o", ["old"]),
        ("backup show o", ["old"]),
        ("backup --to o", ["old"]),
        ("backup --identity o", ["old"]),
        ("restore o", ["old"]),
        ("restore --identity o", ["old"]),
        ("import-qless --password-file o", ["old"]),
        ("recover data --to d", ["data"]),
        ("inspect d", ["data"]),
        ("doctor d", ["data"]),
        ("doctor data o", ["old"]),
        ("work mail -- ./o", ["./old"]),
        ("work mail -- ./old d", ["data"]),
        # No files where none is meant.
        ("policy drop o", []),
    ],
)
def test_bash_completes_files_wherever_a_command_takes_one(
    script: Path, words: str, found: list[str]
) -> None:
    (script.parent / "data").mkdir()
    (script.parent / "old").touch()
    assert tab(script, *words.split()) == found


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    for word in ("top", "finalize", "import-qless", "redrive", "--sort"):
        # fish writes a long option without its dashes.
        assert word.removeprefix("--" if shell == "fish" else "") in text


def test_zsh_takes_no_part_of_a_value_for_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    """A colon in the name of a value would end it, and begin the command that completes it."""
    assert main(["completion", "zsh"]) == 0
    text = capsys.readouterr().out
    assert "]:HOST\\:PORT,...:" in text and "HOST:PORT" not in text
    assert "usage" not in text
    with pytest.raises(SystemExit):
        main(["top", "--help"])
    assert "HOST:PORT,..." in capsys.readouterr().out


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["completion", "ksh"])
    assert ended.value.code == 2
    assert "choose from 'bash', 'fish', 'zsh'" in capsys.readouterr().err
