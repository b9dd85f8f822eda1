"""Run every snippet of the pages about the pipeline as a reader would.

Each page is a notebook in a fresh process of this environment's Python, without activation: the
first python3 in PATH has no packages. Nodes are real; the tests replace addresses and the folders
in which the pages keep files.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from beanpoled.cli import main
from tests.integration.support.nodes import Cluster
from tests.integration.support.raw import Raw
from tests.pipeline import follow
from tests.pipeline.conftest import PYTHONPATH, SMALL_JVM
from tests.pipeline.pages import DOCS, blocks, run_blocks

PAGES: Final = sorted(DOCS.glob("pipeline*.md"))
TIMEOUT_S: Final = 400
# The addresses in pages, one or several.
ADDRESS: Final = re.compile(r"\b(?:n\d|127\.0\.0\.1|localhost):113\d\d(?:,n\d:113\d\d)*\b")
FOLDER: Final = re.compile(r"(?<![\w./:])/(export|exports|reports|tables|checkpoints|shared)\b")
# The id of a job in all pages.
JOB: Final = "4711"
CONFIGURATION: Final = {
    "spark.driver.extraJavaOptions": SMALL_JVM,
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}
WORDS: Final = "a word that is long enough"


class Place:
    """Three nodes with some events, an export of the events, and the environment of a page."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.addresses = ",".join(node.grpc for node in cluster.nodes)
        self.directory = directory
        configuration = "\n".join(f"{key} {value}" for key, value in CONFIGURATION.items())
        (directory / "spark-defaults.conf").write_text(configuration)
        decoys = directory / "decoys"
        decoys.mkdir()
        for name in ("python", "python3"):
            (decoys / name).write_text(
                "#!/bin/sh\necho 'a Python that knows nothing' >&2; exit 1\n"
            )
            (decoys / name).chmod(0o755)
        java = shutil.which("java")
        assert java is not None
        self._path = f"{decoys}:{Path(java).parent}:/usr/bin:/bin"

    def replaced(self, text: str) -> str:
        """Return a snippet with existing addresses, folders and a job."""
        text = ADDRESS.sub(self.addresses, text).replace(JOB, "5")
        return FOLDER.sub(lambda found: f"{self.directory}/{found[1]}", text)

    def follow(self, page: Path) -> "subprocess.CompletedProcess[str]":
        """Run the snippets of a page."""
        todo = [
            (block.language, f"{block.page}:{block.line}", self.replaced(block.text))
            for block in run_blocks(page)
        ]
        given = self.directory / f"{page.name}.json"
        given.write_text(json.dumps(todo))
        environment = {
            "HOME": str(self.directory),
            "PATH": self._path,
            "PYTHONPATH": PYTHONPATH,
            "SPARK_CONF_DIR": str(self.directory),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        if "JAVA_HOME" in os.environ:
            environment["JAVA_HOME"] = os.environ["JAVA_HOME"]
        shell_path = f"{Path(sys.executable).parent}:{self._path}"
        return subprocess.run(
            [sys.executable, follow.__file__, str(given), shell_path],
            cwd=self.directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("pages")
    with Cluster(directory / "cluster").running() as cluster:
        with Raw(cluster.nodes[0].beanstalk) as connection:
            for tube in (b"default", b"mail"):
                connection.command(b"use " + tube)
                for _ in range(4):
                    connection.command(b"put 0 0 60 1\r\nx")
            for job in (1, 2, 5, 6):
                connection.command(b"reserve-job %d" % job)
            connection.command(b"delete 1")
            connection.command(b"bury 5 0")
        found = Place(cluster, directory)
        export = str(directory / "export")
        assert main(["events", "export", "--addresses", found.addresses, "--to", export]) == 0
        yield found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_can_be_followed(place: Place, page: Path) -> None:
    done = place.follow(page)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-6000:]}"
    assert done.stdout.count("done: ") == len(run_blocks(page))


def test_the_recipes_are_seen() -> None:
    """Pages without recognized snippets would pass unnoticed."""
    counted = {page.name: len(run_blocks(page)) for page in PAGES}
    assert counted["pipeline-spark.md"] >= 10
    assert counted["pipeline-statistics.md"] >= 2


def test_what_is_not_run_has_a_reason(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"<!-- not run: {WORDS} -->\n```sh\nrm -rf /\n```\n\n```sql\nSELECT 1\n```\n")
    assert [block.text for block in run_blocks(page)] == ["SELECT 1"]
    assert [block.reason for block in blocks(page)] == [WORDS, ""]
    for wrong, words in (
        ("<!-- not run: no -->\n```sh\nls\n```\n", "'no' is no reason"),
        (f"<!-- not run: {WORDS} -->\n\ntext\n", "page.md:3: the mark before this line"),
        ("```pyhton\n1\n```\n", "page.md:1: blocks are python, sql, sh or text, not pyhton"),
    ):
        page.write_text(wrong)
        with pytest.raises(ValueError, match=words):
            blocks(page)
