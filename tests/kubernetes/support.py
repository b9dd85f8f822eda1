"""Run helm and kubectl as installed by `make test-kubernetes`, and read the rendered manifests."""

import subprocess
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
TOOLS: Final = ROOT / "build" / "kubernetes" / "bin"
DEPLOY: Final = ROOT / "deploy" / "kubernetes"
CHART: Final = DEPLOY / "beanpole"
BASE: Final = DEPLOY / "base"
RELEASE: Final = "beanpole"


def run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run one of the tools; the commands of these tests need no cluster and no network."""
    line = [str(TOOLS / program), *words]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def render(*words: str) -> str:
    """Return the manifests of the chart with these arguments of `helm template`."""
    done = run("helm", "template", RELEASE, str(CHART), *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def manifests(text: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(text) if one]


def one_of(kind: str, text: str) -> dict[str, Any]:
    (found,) = [one for one in manifests(text) if one["kind"] == kind]
    return found
