"""`beanpole recover` of a queue of machine version 4: its users, and the jobs that it leaves out.

tests/integration/test_recover.py has a lost token with real nodes.
"""

from hashlib import sha256
from pathlib import Path

import pytest

from beanpole import commands as c
from beanpole.core.jobs.policies import Policy
from beanpole.core.jobs.spaces import RANK_NORMAL
from beanpole.core.machine import Machine
from beanpole.core.users import ADMIN, EVERYWHERE, TOKENS_MAX, USERS_MAX, Limits, User
from beanpole.events import GEARMAN
from beanpoled import cli
from beanpoled.disk.offline import make_administrator, may_have_user
from tests.unit.beanpoled.test_offline import MEMBERS, entry, new_disk, recovered

ROOT = b"root"
DIGEST = b"d" * 32
FUNCTION = b"\x02resize"
LEADERS = ((c.RAISE, 3), (c.RAISE, 4), (c.EPOCH, 1, 0, 10**6, 10**6, 10**6, 2**40))
# Session 2 has two jobs of Gearman in the background, of which the first is at its last attempt,
# and one for a client that waits. The node with both sessions is lost.
ENTRIES = (
    c.encode_entry(0, 1, 1, [(c.LEADER, 0, 0, c.pack_commands(LEADERS))]),
    entry(1),
    entry(
        2,
        *((c.OPEN, 1), (c.OPEN, 2), (c.SET_PROTOCOL, 2, GEARMAN), (c.WATCH, 2, FUNCTION)),
        *(
            (c.SUBMIT, 2, FUNCTION, RANK_NORMAL, 0, b"u%d" % number, 0, foreground, b"", b"body")
            for number, foreground in enumerate((0, 0, 1))
        ),
        (c.TAKE, 2),
        (c.SET_POLICY, 1, FUNCTION, *Policy(attempts_max=1)),
    ),
)


def a_machine() -> Machine:
    machine = Machine()
    machine.activate(c.MACHINE_VERSION)
    return machine


def with_users(*users: User) -> Machine:
    machine = a_machine()
    machine.users.change({user.name: user for user in users})
    return machine


def test_a_new_user_has_every_right_and_the_token() -> None:
    machine = a_machine()
    make_administrator(machine, ROOT, DIGEST)
    user = machine.users.rows[ROOT]
    assert machine.users.owner(DIGEST) is user
    assert user.tokens == (DIGEST,) and user.everywhere & ADMIN
    assert machine.users.is_born(user.birth)


def test_a_user_keeps_its_limits_and_its_newest_tokens_and_the_others_all() -> None:
    tokens = tuple(b"%032d" % number for number in range(TOKENS_MAX))
    limits = Limits(5, 6, 7)
    other = User(b"other", (b"o" * 32,), ((b"mail", 1),), birth=b"\0" * 7 + b"\2")
    old = User(ROOT, tokens, ((b"mail", 1),), limits, b"\0" * 7 + b"\1")
    machine = with_users(old, other)
    make_administrator(machine, ROOT, DIGEST)
    user = machine.users.rows[ROOT]
    assert user.tokens == (*tokens[1:], DIGEST)
    assert (user.limits, user.birth) == (limits, old.birth)
    assert dict(user.rights).keys() == {EVERYWHERE}
    assert machine.users.owner(tokens[0]) is None
    assert machine.users.rows[b"other"] is other


def test_no_user_is_made_where_there_are_none_or_the_most() -> None:
    machine = Machine()
    machine.activate(3)
    assert may_have_user(machine, ROOT) == "machine version 3 has no users"
    full = with_users(*(User(b"u%d" % number, (), ()) for number in range(USERS_MAX)))
    assert "which is the most" in may_have_user(full, ROOT)
    assert may_have_user(full, b"u0") == ""


def test_a_queue_of_an_earlier_machine_version_gets_no_user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk, out = tmp_path / "n2", tmp_path / "out"
    disk.mkdir()
    new_disk(disk)
    command = ["recover", str(disk), "--to", str(out), "--administrator", "root", "--yes"]
    assert cli.main(command) == 2
    assert "machine version 2 has no users" in capsys.readouterr().err
    assert not out.exists()


def test_the_printed_token_is_that_of_the_user_and_the_jobs_that_end_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk, out = tmp_path / "n2", tmp_path / "out"
    disk.mkdir()
    new_disk(disk, ENTRIES)
    command = ["recover", str(disk), "--to", str(out), "--administrator", "root"]
    assert cli.main(command) == 0
    told = capsys.readouterr().out
    assert "The user root gets every right" in told and "The new token" not in told
    assert cli.main([*command, "--yes"]) == 0
    told = capsys.readouterr().out
    assert "2 jobs of Gearman are left out: " in told
    token = told.partition("The new token of root: ")[2].split()[0]
    for name in MEMBERS:
        machine = recovered(out / name, name)[1]
        user = machine.users.owner(sha256(token.encode()).digest())
        assert user is not None and user.name == ROOT and user.everywhere & ADMIN
        jobs = machine.queue.jobs
        assert [jobs.get(number) is not None for number in (1, 2, 3)] == [False, True, False]


@pytest.mark.parametrize("name", ["", "anonymous", "a b", "x" * 65])
def test_a_wrong_name_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = tmp_path / "n2"
    disk.mkdir()
    new_disk(disk)
    out = ["--to", str(tmp_path / "out"), "--yes"]
    assert cli.main(["recover", str(disk), *out, "--administrator", name]) == 2
    assert f"--administrator = {name!r} is not allowed" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
