"""Rolling restarts and upgrades in the StatefulSet's own order, with real nodes under load.

The pods are processes that run as the rendered manifest describes (`chaos.statefulset`).
"""

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from chaos.statefulset import SECRET, Pod, StatefulSet, path_of
from tests.integration.support.history import History, judge
from tests.integration.support.load import Load
from tests.integration.support.nodes import BEANPOLE
from tests.integration.support.releases import LAST, release, this_program
from tests.kubernetes import unmodified
from tests.kubernetes.support import one_of, render

CLIENTS: Final = 4
JOBS: Final = 300
TIMEOUT_S: Final = 300
# Settings of the manifest that the last release does not know.
NEWER: Final = ("BEANPOLE_LISTENERS", "BEANPOLE_LOG_FORMAT", "BEANPOLE_PEER_SECRET_FILE")

pytestmark = pytest.mark.timeout(TIMEOUT_S)


def program(words: list[str], folder: Path) -> dict[str, str]:
    """Create a folder with a program `beanpoled`, as in an image."""
    folder.mkdir()
    path = folder / "beanpoled"
    path.write_text('#!/bin/sh\nexec {} "$@"\n'.format(" ".join(words)))
    path.chmod(0o755)
    return path_of(folder)


@pytest.fixture
def new(tmp_path: Path) -> dict[str, str]:
    path = ":".join(entry for entry in sys.path if entry)
    return program(["env", f"PYTHONPATH={path}", *this_program({}).words], tmp_path / "new")


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[StatefulSet]:
    # No reserve, because other tests use the same disk.
    rendered = render("--set", "settings.disk_reserve_bytes=0")
    found = StatefulSet(one_of("StatefulSet", rendered), tmp_path / "pods")
    try:
        yield found
    finally:
        found.close()


class Watched:
    """Clients of the other pods while one pod is away; they must see no error."""

    def __init__(self, pods: StatefulSet) -> None:
        self._pods = pods
        self.histories: list[History] = []

    @contextlib.contextmanager
    def around(self, away: Pod) -> Iterator[None]:
        others = [pod.beanstalk for pod in self._pods.pods if pod is not away]
        load, public = Load(others, CLIENTS), unmodified.Clients(others)
        load.start()
        public.start()
        try:
            load.wait_for_progress(JOBS)
            public.wait_for_progress()
            yield
            load.wait_for_progress(JOBS)
            public.wait_for_progress()
            public_jobs = public.finish()
            history = load.finish()
        finally:
            load.stop()
            public.stop()
        assert not history.errors, f"{away.name} was away: {history.errors[:5]}"
        verdict = judge(history)
        assert verdict.good, f"{away.name} was away: {verdict}"
        sys.stdout.write(
            f"{away.name} away: {verdict.acknowledged} jobs, "
            f"longest wait {history.longest_wait_s:.2f} s; {public_jobs} jobs of greenstalk\n"
        )
        self.histories.append(history)


def test_a_rolling_restart(pods: StatefulSet, new: dict[str, str]) -> None:
    pods.start(new)
    watched = Watched(pods)
    pods.roll(new, watched.around)
    assert len(watched.histories) == 3


def test_a_rolling_upgrade(pods: StatefulSet, new: dict[str, str], tmp_path: Path) -> None:
    old = program(list(release(LAST, tmp_path).words), tmp_path / "old")
    pods.start(old | {"BEANPOLE_PEER_SECRET": SECRET}, NEWER)
    watched = Watched(pods)
    pods.roll(new, watched.around)
    assert len(watched.histories) == 3


def test_the_secret_is_replaced_while_pods_serve(pods: StatefulSet, new: dict[str, str]) -> None:
    pods.start(new)
    for pod in pods.pods:
        pod.update_secret("another secret of all pods")
    command = [*BEANPOLE, "node", "reload", "--all", "--addr", f"{pods.pods[0].address}:11320"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.stdout.count("peer_secret is another one") == len(pods.pods), done
    watched = Watched(pods)
    pods.roll(new, watched.around)
    assert len(watched.histories) == len(pods.pods)


def test_an_emptied_volume_votes_only_when_told_to(pods: StatefulSet, new: dict[str, str]) -> None:
    pods.start(new)
    lost = pods.pods[1]
    assert lost.stop() == 0
    shutil.rmtree(lost.volume)
    lost.volume.mkdir()
    lost.start(new)
    assert lost.process
    assert lost.process.wait() != 0
    assert "--rejoin" in lost.story()
    # The file that `kubectl patch configmap` makes appear in the pod.
    (lost.directory / "etc/beanpole/rejoin" / lost.name).touch()
    lost.start(new)
    lost.wait_until_ready()
