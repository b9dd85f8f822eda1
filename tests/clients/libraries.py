"""The programs for the libraries from Debian and npm, and the packages that they need."""

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import Final

from tests.clients.harness import ALL_SUBMITS, HERE, MODULES, PYTHON, Place, Program, Reply
from tests.clients.places import AGAINST_GEARMAND

APT_GET: Final = (
    "apt-get install gearman-tools libgearman-client-perl php8.2-cli php8.2-gearman nodejs npm"
)
PROGRESS: Final = re.compile(r"\d+% Complete\n")
PROGRAMS: Final = HERE / "programs"
NODE: Final = {"NODE_PATH": str(MODULES), "NODE_NO_WARNINGS": "1"}


class Tool(Program):
    """Debian's command `gearman`, which prints only results."""

    def submit(
        self,
        place: Place,
        function: str,
        payload: str,
        *,
        background: bool = False,
        priority: str = "normal",
        unique: str = "",
    ) -> Reply:
        options = {"low": ["-L"], "normal": [], "high": ["-I"]}[priority]
        options += ["-b", "-v"] if background else []
        options += ["-u", unique] if unique else []
        host, _, port = place.submitter.rpartition(":")
        command = ["gearman", "-h", host, "-p", port, "-f", function, *options, payload]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if background:
            assert done.returncode == 0, done
            return Reply((("created", done.stdout.removeprefix("Task created: ").strip()),))
        if done.returncode == 0:
            return Reply((("complete", PROGRESS.sub("", done.stdout)),))
        assert "Job failed" in done.stderr, done
        return Reply((("failed",),))

    def worker_commands(self, place: Place, name: str) -> list[list[str]]:
        host, _, port = place.worker.rpartition(":")
        connect = ["gearman", "-w", "-h", host, "-p", port]
        commands = []
        for function in sorted(self.functions):
            each_line = ["-n"] if function == "parts" else []
            act = ["sh", str(PROGRAMS / "tool.sh"), function]
            commands.append([*connect, *each_line, "-f", f"{name}-{function}", "--", *act])
        return commands


DEBIAN: Final = (
    # With -n its worker sends all lines so far for each new line, and no result.
    Tool(
        "gearman-tools",
        ("gearman",),
        "background priority unique",
        "fail data",
        parts=("first\n", "first\nsecond\n", "first\nsecond\nparts:{}", ""),
    ),
    Program(
        "perl",
        ("perl", str(PROGRAMS / "perl.pl")),
        ALL_SUBMITS,
        # It sends WORK_FAIL after an exception, and ends at gearmand's error reply to that.
        "fail data warning progress limited" + (" throw" * (not AGAINST_GEARMAND)),
    ),
    Program(
        "php",
        ("php", str(PROGRAMS / "php.php")),
        ALL_SUBMITS,
        "fail throw data warning progress limited",
    ),
)
NPM_PROGRAMS: Final = (
    Program(
        "node-gearman",
        ("node", str(PROGRAMS / "node-gearman.js")),
        "background priority unique",
        "fail data",
        NODE,
    ),
    Program(
        "npm-gearman",
        ("node", str(PROGRAMS / "gearman.js")),
        ALL_SUBMITS,
        "fail throw data warning progress",
        NODE,
    ),
)
ALL: Final = (*PYTHON, *DEBIAN, *NPM_PROGRAMS)


def missing() -> list[str]:
    """Return the missing requirements of these tests."""
    needed = ("gearman", "gearadmin", "perl", "php", "node")
    absent = [name for name in needed if not shutil.which(name)]
    checks: Sequence[Sequence[str]] = (
        ("perl", "-MGearman::Client", "-e", "1"),
        ("php", "-r", "exit(class_exists('GearmanClient') ? 0 : 1);"),
    )
    for command in checks:
        if command[0] not in absent:
            done = subprocess.run(command, capture_output=True, check=False)
            absent += [f"Gearman's library of {command[0]}"] if done.returncode else []
    found = [f"{', '.join(absent)}: {APT_GET}"] if absent else []
    wanted = json.loads((HERE / "package.json").read_text())["dependencies"]
    for name, version in wanted.items():
        package = MODULES / name / "package.json"
        if not package.exists() or json.loads(package.read_text())["version"] != version:
            found.append(
                f"{name} {version} (npm): make test-clients installs it into build/clients"
            )
    return found
