"""Build the images of runs in containers without a registry: a base from Debian, and ours on it.

The base is a tree that debootstrap makes once, in build/docker/base, with the builder's tools,
HAProxy and Prometheus. `python -m chaos.images` makes it where Debian's packages can be reached,
which is not possible beside an engine of ours. An engine imports the tree as one image. It stands
for the images that the Dockerfile and compose.yaml name, under names of its own, so no image of the
user is replaced. It is larger than a slim image. Wheels come from build/wheels, because a build
has no access to the network.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final, NamedTuple

from docker.errors import ImageNotFound

ROOT: Final = Path(__file__).resolve().parents[1]
TREE: Final = ROOT / "build" / "docker" / "base"
MADE: Final = TREE / ".made"
WHEELS: Final = ROOT / "build" / "wheels"
SUITE: Final = "bookworm"
PACKAGES: Final = "python3,python3-venv,python3-dev,gcc,libc6-dev,haproxy"
# Debian's package also installs services and a web page; the program alone is enough.
PROMETHEUS: Final = Path("/usr/bin/prometheus")
BASE: Final = "beanpole-test/base"
NODE: Final = "beanpole-test/node"
SCRAPER: Final = "beanpole-test/prometheus"


class Images(NamedTuple):
    """The names of images in the engine."""

    base: str
    node: str
    prometheus: str


def missing() -> str:
    """Return in one line why no images can be made here; empty if they can."""
    needed = {"docker": "docker.io", "debootstrap": "debootstrap", str(PROMETHEUS): "prometheus"}
    packages = sorted({name for tool, name in needed.items() if not shutil.which(tool)})
    if packages:
        return f"to make images: apt-get install {' '.join(packages)}"
    if not list(WHEELS.glob("*.whl")):
        return f"there are no wheels in {WHEELS}: run `make {WHEELS.relative_to(ROOT)}/.ready`"
    if not MADE.exists():
        return f"there is no {TREE}: run `make {MADE.relative_to(ROOT)}`"
    return ""


def make_tree() -> None:
    """Make the tree of the base image anew."""
    shutil.rmtree(TREE, ignore_errors=True)
    TREE.parent.mkdir(parents=True, exist_ok=True)
    _run(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(TREE)])
    shutil.copy(PROMETHEUS, TREE / PROMETHEUS.relative_to("/"))
    MADE.touch()


def build(engine: Any) -> Images:
    """Build all images in the engine of the environment; RuntimeError if that fails."""
    try:
        engine.images.get(BASE)
    except ImageNotFound:
        _import_base()
    _run(["docker", "build", "--tag", SCRAPER, "-"], f'FROM {BASE}\nENTRYPOINT ["{PROMETHEUS}"]\n')
    arguments = [f"BUILDER={BASE}", f"BASE={BASE}", "PIP_NO_INDEX=1", "VERSION=test"]
    given = [word for argument in arguments for word in ("--build-arg", argument)]
    file = str(ROOT / "deploy" / "docker" / "Dockerfile")
    _run(["docker", "build", "--file", file, *given, "--tag", NODE, str(ROOT)])
    return Images(BASE, NODE, SCRAPER)


def _import_base() -> None:
    left_out = ["--exclude=./proc/*", "--exclude=./sys/*", "--exclude=./var/cache/apt/*"]
    pack = ["tar", f"--directory={TREE}", *left_out, "--create", "."]
    with subprocess.Popen(pack, stdout=subprocess.PIPE) as packing:
        subprocess.run(["docker", "import", "-", BASE], stdin=packing.stdout, check=True)
    if packing.returncode:
        raise RuntimeError(f"{pack} ended with {packing.returncode}")


def _run(command: list[str], given: str = "") -> None:
    """Run a command; its output is shown only if it fails."""
    # The classic builder is in every engine; BuildKit's client is a separate package.
    environment = {**os.environ, "DOCKER_BUILDKIT": "0"}
    done = subprocess.run(
        command,
        input=given,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if done.returncode:
        raise RuntimeError(f"{command}: {(done.stdout + done.stderr)[-4000:]}")


if __name__ == "__main__":
    make_tree()
