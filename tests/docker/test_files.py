"""Check the files of deploy/docker by their tools: hadolint, compose's schema, HAProxy."""

import subprocess
from collections.abc import Sequence

import pytest

from chaos.containers import ROOT

FOLDER = ROOT / "deploy" / "docker"
LINTERS = ROOT / "build" / "docker" / "lint" / "bin"
SCHEMA = "vendor.compose-spec"


def check(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.fail(f"{command[0]} is missing (Debian: apt-get install {command[0]})")
    return "" if done.returncode == 0 else done.stdout + done.stderr or "it failed in silence"


def test_dockerfile() -> None:
    assert check([str(LINTERS / "hadolint"), str(FOLDER / "Dockerfile")]) == ""


def test_compose_file_fits_the_schema() -> None:
    command = [str(LINTERS / "check-jsonschema"), "--builtin-schema", SCHEMA]
    assert check([*command, str(FOLDER / "compose.yaml")]) == ""


@pytest.mark.parametrize("defect", ["", "balance leastcon", "server n4 n4:11300 track none/n1"])
def test_haproxy_takes_its_configuration(defect: str, tmp_path: object) -> None:
    text = (FOLDER / "haproxy.cfg").read_text()
    path = f"{tmp_path}/haproxy.cfg"
    with open(path, "w") as file:
        file.write(text + f"\nbackend other\n  {defect}\n" if defect else text)
    found = check(["haproxy", "-c", "-f", path])
    assert bool(found) == bool(defect), found
