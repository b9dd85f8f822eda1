"""The unit of deploy/systemd: checked by systemd, and run on three machines as documented.

The machines are namespaces on this machine (`machine`) with a real systemd, the unit with all its
restrictions, and real nodes, which run the sources in place of a wheel.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.integration.support.waiting import wait_until
from tests.systemd.machine import ROOT, Machine, machines

FILES: Final = ROOT / "deploy/systemd"
ADDRESSES: Final = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}
TIMEOUT_S: Final = 60.0
# systemd's scale to 10, in tenths; below 2 is its second best grade.
EXPOSURE_MAX: Final = 15


def blocks() -> list[str]:
    """Return the commands of the page's section in order."""
    page = (ROOT / "docs/deploying.md").read_text()
    section = page.split("\n## systemd\n")[1].split("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)


def say(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "beanpoled.service"
    # The program is not installed on this machine.
    unit.write_text(
        (FILES / unit.name).read_text().replace("/opt/beanpole/bin/beanpoled", "/bin/true")
    )
    done = say("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    unit.write_text(unit.read_text().replace("WatchdogSec=", "WatchdogSeconds="))
    done = say("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit))
    assert "WatchdogSeconds" in done.stderr, "it would see a wrong name"


def test_the_unit_gives_up_its_rights() -> None:
    line = ["systemd-analyze", "security", "--offline=true", "--no-pager"]
    done = say(*line, f"--threshold={EXPOSURE_MAX}", str(FILES / "beanpoled.service"))
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def three() -> Iterator[list[Machine]]:
    """Three machines set up by the commands of the page."""
    with machines(ADDRESSES) as found:
        _, install, check, start, _ = blocks()
        for machine in found:
            machine.run(install)
        secret = found[0].run("cat /etc/beanpole/secret.env")
        for machine in found:
            machine.run(f"echo '{secret.strip()}' > /etc/beanpole/secret.env")
            configure(machine)
            machine.run(check)
        for machine in found:
            machine.run(start.replace("systemctl status", "systemctl --no-pager status"))
        for machine in found:
            wait_until_serving(machine)
        yield found


def configure(machine: Machine) -> None:
    """Set the machine's own name and addresses, as the page describes."""
    own = f's/^node_id = .*/node_id = "{machine.name}"/; /isten/s/10.0.0.1/{machine.address}/'
    gearman = f"/^gearman/s/10.0.0.1/{machine.address}/"
    machine.run(f"sed -i '{own}; {gearman}' /etc/beanpole/node.toml")


def ready(machine: Machine) -> bool:
    return machine.try_to(f"curl --fail http://{machine.address}:11330/readyz")[0] == 0


def wait_until_serving(machine: Machine) -> None:
    wait_until(lambda: ready(machine), TIMEOUT_S, f"{machine.name}: {machine.journal()}")
    wait_until(lambda: machine.show("StatusText") == ["serving"], TIMEOUT_S)


def command(machine: Machine, words: str) -> str:
    """Run `beanpole` against the beanstalk address of the machine."""
    return machine.run(f"/opt/beanpole/bin/beanpole {words} --addr {machine.address}:11300")


def test_three_machines_keep_one_queue(three: list[Machine]) -> None:
    assert command(three[0], "put one") == "INSERTED 1\n"
    assert "one\nDELETED" in command(three[1], "reserve --timeout 20 --delete")
    for machine in three:
        assert machine.show("ActiveState", "User", "NRestarts") == ["active", "beanpole", "0"]


def test_files_belong_to_those_that_need_them(three: list[Machine]) -> None:
    said = three[0].run("stat -c '%U %G %a %n' /etc/beanpole /etc/beanpole/* /var/lib/beanpole")
    assert said.splitlines() == [
        "root beanpole 750 /etc/beanpole",
        "root beanpole 640 /etc/beanpole/node.toml",
        "root root 600 /etc/beanpole/secret.env",
        "beanpole beanpole 700 /var/lib/beanpole",
    ]
    assert three[0].run("stat -c '%U %a' /run/beanpole/sock") == "beanpole 770\n"
    three[0].run("/opt/beanpole/bin/beanpole tubes --addr unix:/run/beanpole/sock")


def test_a_rolling_restart_loses_nothing(three: list[Machine]) -> None:
    jobs = [command(machine, "put kept").split()[1] for machine in three]
    for machine in three:
        machine.run("systemctl restart beanpoled")
        wait_until_serving(machine)
    assert command(three[0], f"delete {' '.join(jobs)}") == "DELETED\n" * 3


def test_a_node_that_is_killed_is_started_again(three: list[Machine]) -> None:
    machine = three[1]
    (before,) = machine.show("MainPID")
    machine.run("systemctl kill --signal=SIGKILL --kill-whom=main beanpoled")
    wait_until(lambda: machine.show("NRestarts") == ["1"], TIMEOUT_S, machine.journal())
    wait_until_serving(machine)
    assert machine.show("MainPID") != [before]


def test_the_watchdog_ends_a_node_that_stands(three: list[Machine]) -> None:
    machine = three[2]
    machine.run(
        "mkdir -p /run/systemd/system/beanpoled.service.d && cd /run/systemd/system && "
        "printf '[Service]\\nWatchdogSec=2\\nRestartSec=0\\n' > beanpoled.service.d/test.conf && "
        "systemctl daemon-reload && systemctl restart beanpoled"
    )
    wait_until_serving(machine)
    machine.run("systemctl kill --signal=SIGSTOP --kill-whom=main beanpoled")
    wait_until(lambda: "Watchdog timeout" in machine.journal(), TIMEOUT_S)
    wait_until_serving(machine)


def test_reload_and_a_wrong_configuration(three: list[Machine]) -> None:
    machine = three[0]
    machine.run("sed -i '1i log_level = \"debug\"' /etc/beanpole/node.toml")
    machine.run("systemctl reload beanpoled")
    wait_until(lambda: "log_level is debug, was info" in machine.journal(), TIMEOUT_S)
    machine.run("sed -i '1s/.*/log_levels = 1/' /etc/beanpole/node.toml")
    machine.run("systemctl reload beanpoled")
    wait_until(lambda: "not reloaded: " in machine.journal(), TIMEOUT_S)
    assert ready(machine), "it goes on with what it has"
    assert machine.try_to("systemctl restart beanpoled")[0] == 1
    found = machine.show("ActiveState", "ExecMainStatus", "NRestarts")
    assert found == ["failed", "78", "0"], "it is not started again"
    machine.run("sed -i 1d /etc/beanpole/node.toml && systemctl start beanpoled")
    wait_until_serving(machine)


def test_a_lost_disk_comes_back_as_the_page_says(three: list[Machine]) -> None:
    machine = three[1]
    (job,) = command(three[0], "put kept").split()[1:]
    machine.run("systemctl stop beanpoled && find /var/lib/beanpole -mindepth 1 -delete")
    machine.run("systemctl start --no-block beanpoled")
    wait_until(lambda: "n empty disk" in machine.journal(), TIMEOUT_S, machine.journal())
    machine.run("systemctl stop beanpoled && find /var/lib/beanpole -mindepth 1 -delete")
    machine.run(blocks()[4])
    wait_until(lambda: "votes from now on" in machine.journal(), TIMEOUT_S)
    wait_until_serving(machine)
    machine.run("systemctl restart beanpoled")
    wait_until_serving(machine)
    assert command(machine, f"delete {job}") == "DELETED\n"


def test_a_stop_is_in_order(three: list[Machine]) -> None:
    for machine in three:
        machine.run("systemctl stop beanpoled")
        assert machine.show("Result", "ExecMainStatus") == ["success", "0"]
