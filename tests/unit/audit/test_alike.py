"""Reads and refusals in the audit log: they do not displace other lines by their number."""

import pytest

from beanpole.core.users import ADMIN, PUT, WORK
from beanpoled.audit import alike, entry
from beanpoled.audit.alike import KINDS_MAX, Alike
from beanpoled.audit.entry import Entry
from tests.unit.beanpoled.auth_scene import TOKEN, gearman
from tests.unit.beanpoled.gearman_scene import handle

READ = Entry(0, "10.0.0.9", "", "", "JobAdmin/ListJobs", {}, "OK", 1, reads=True)


def test_addresses_of_one_network_are_one_caller() -> None:
    told: list[Entry] = []
    add = Alike(told.append).add
    for host in range(300):
        add(READ._replace(caller=f"2001:db8:0:1::{host:x}"))
    add(READ._replace(caller="2001:db8:0:2::1"))
    assert [one.caller for one in told] == ["2001:db8:0:1::0", "2001:db8:0:2::1"]


def test_the_number_of_kinds_in_a_minute_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Entry] = []
    add = Alike(told.append).add
    for user in range(KINDS_MAX + 200):
        add(READ._replace(user=str(user)))
    assert len(told) == KINDS_MAX and not any(one.alike for one in told)
    add(READ._replace(user="0"))
    refused = READ._replace(user="new", outcome="UNAUTHENTICATED", refused=True)
    change = READ._replace(method="Users/Set", reads=False)
    add(change)
    add(refused)
    assert told[KINDS_MAX:] == [change, refused], "these have limits of their own, or none"
    monkeypatch.setattr(alike, "ALIKE_S", 0.0)  # the minute is over
    monkeypatch.setattr(alike, "FORGET_PERIOD_S", 0.0)
    add(READ._replace(user="new"))
    assert told[-1].alike == 200 + 1, "all that was left out is counted"
    assert len(told) == KINDS_MAX + 3


def test_a_line_of_a_caller_without_a_right_is_short() -> None:
    arguments: dict[str, entry.Value] = {"rules": ["r" * 250] * 20}
    change = READ._replace(method="Users/SetRules", arguments=arguments, reads=False)
    assert b"rrr" in entry.line(change, 1, "a")
    refused = entry.line(change._replace(refused=True), 1, "a")
    assert len(refused) < 2048 and b'{"left out": "5' in refused


@pytest.mark.parametrize(("rights", "is_whole"), [(WORK | ADMIN, True), (PUT, False)])
def test_commands_that_failed_for_an_administrator_of_gearman_are_all_recorded(
    rights: int, is_whole: bool
) -> None:
    """Those of one answer were left out, whatever their functions and jobs were."""
    told: list[Entry] = []
    scene, client = gearman((b"*", rights))
    scene.node.clients.audit = Alike(told.append).add
    client.text(b"auth %b\n" % TOKEN)
    lines = [b"drop function mail", b"drop function payroll", b"drop function orders"]
    lines += [b"cancel job " + handle(number) for number in (7, 8, 9)]
    for line in lines:
        client.text(line + b"\n")
    assert all(one.outcome.startswith("ERR ") for one in told)
    shown = [str(one.arguments["line"]).encode() for one in told]
    assert shown == (lines if is_whole else [lines[0], lines[3]])
    assert [one.refused for one in told] == [not is_whole] * len(told)
