"""Run the qless clients of PyPI and the tests in their source packages, and count the outcomes.

`make test-qless` unpacks the source packages and installs what they need (requirements.txt) into
build/qless-suites. The packages are not modified; `suite/` has modules that they need but lack.
"""

import os
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path
from shutil import which
from typing import Final, NamedTuple

from tests.integration.support.raw import Address

ROOT: Final = Path(__file__).resolve().parents[2]
OWN: Final = Path(__file__).parent / "suite"
SUITES: Final = ROOT / "build" / "qless-suites"
PYTHON: Final = SUITES / "venv" / "bin" / "python"
REQLESS: Final = SUITES / "reqless-0.13.3"
QLESS_PY: Final = SUITES / "qless-py-0.11.4"
# Redis runs its scripts; it has no tests, and its client does not run on current Pythons.
QLESS_PY_SEED: Final = SUITES / "qless-py-0.9.4"
# The suites need an empty server before each test, and empty it after each.
FLUSH: Final = {"qless_flush": "on"}
AGAINST_REDIS: Final = os.environ.get("BEANPOLE_QLESS_SERVER") == "redis"
PORT_TIMEOUT_S: Final = 60.0
SUITE_TIMEOUT_S: Final = 240.0
# These tests act before their listening thread may be ready, so they are repeated, also with Redis.
RACING: Final = frozenset(
    {"reqless_test.test_listener.TestListener.test_basic"}
    | {f"reqless_test.test_events.TestEvents.test_{name}" for name in ("basic", "off")}
    | {f"test.test_events.TestEvents.test_{name}" for name in ("basic", "off")}
)
REPEATS: Final = 3
# Some tests wait forever for workers if an earlier call failed.
TEST_TIMEOUT_S: Final = 30


class Place(NamedTuple):
    """The address for a client, and the address for a listener."""

    address: Address
    other: Address


class Outcome(NamedTuple):
    """The outcomes of the tests of a suite by name."""

    passed: tuple[str, ...]
    skipped: Mapping[str, str]
    failed: Mapping[str, str]

    def corrected(self, name: str, again: "Outcome") -> "Outcome":
        """Return all outcomes after a failed test was run again."""
        others = {other: text for other, text in self.failed.items() if other != name}
        failed = {**others, **again.failed}
        return Outcome((*self.passed, *again.passed), self.skipped, failed)


def missing() -> list[str]:
    """Return the missing requirements of these tests."""
    wanted = (PYTHON, REQLESS, QLESS_PY, QLESS_PY_SEED)
    absent = [path for path in wanted if not path.exists()]
    found = ["the suites: make test-qless installs them"] if absent else []
    if not which("redis-server") or not which("redis-cli"):
        found.append("Redis: apt-get install redis-server redis-tools")
    return found


def environment(*folders: Path) -> dict[str, str]:
    """Return the environment of a client with its modules in these folders."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONHOME"}
    return {**inherited, "PYTHONPATH": os.pathsep.join(map(str, (*folders, OWN)))}


def run_suite(source: Path, tests: str, address: Address, reports: Path) -> Outcome:
    """Run the tests in a folder of a source package against the server at an address."""
    outcome = _run(source, tests, address, reports / "all.xml")
    for number in range(REPEATS):
        racing = [name for name in outcome.failed if name in RACING]
        for name in racing:
            *module, case, test = name.split(".")
            again = f"{'/'.join(module)}.py::{case}::{test}"
            found = _run(source, again, address, reports / f"{name}-{number}.xml")
            outcome = outcome.corrected(name, found)
    return outcome


def _run(source: Path, tests: str, address: Address, report: Path) -> Outcome:
    command = [
        *(str(PYTHON), "-m", "pytest", "-q", "-p", "redirect", "-p", "no:cacheprovider"),
        *("-c", os.devnull, f"--rootdir={source}", f"--timeout={TEST_TIMEOUT_S}"),
        *(f"--junitxml={report}", tests),
    ]
    done = subprocess.run(
        command,
        cwd=source,
        env={**environment(source), "REDIS_URL": f"redis://{address}"},
        capture_output=True,
        text=True,
        timeout=SUITE_TIMEOUT_S,
        check=False,
    )
    assert report.exists(), f"{done.stdout}\n{done.stderr}"
    return read_report(report)


def read_report(report: Path) -> Outcome:
    """Read a report of pytest."""
    passed: list[str] = []
    skipped: dict[str, str] = {}
    failed: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        bad = [child for child in case if child.tag in ("failure", "error")]
        if bad:
            failed[name] = f"{bad[0].get('message')}\n{bad[0].text}"
        elif (left := case.find("skipped")) is not None:
            skipped[name] = str(left.get("message"))
        else:
            passed.append(name)
    return Outcome(tuple(passed), skipped, failed)
