"""Tests of the seam to the library: pinned files, no pickle, several replicas in one process."""

import hashlib
import re
import shutil
from pathlib import Path
from typing import Any

import msgpack
import pysyncobj
import pysyncobj.syncobj
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanpole.errors import ProtocolError, ReplicationError
from beanpole.replication.consensus import ENTRY_MAX_BYTES
from beanpole.replication.pysyncobj import messages, pinned
from beanpole.replication.pysyncobj.library import Member
from beanpole.replication.pysyncobj.messages import NO_OP, OURS, decode, encode
from tests.sim.clock import Clock
from tests.sim.lone import Lone

FOLDER = Path(pysyncobj.__file__).parent


def test_the_pinned_library_is_the_installed_one() -> None:
    pinned.check()
    digest = hashlib.sha256((FOLDER / "syncobj.py").read_bytes()).hexdigest()
    assert digest.startswith("e8bdf06797085d73"), "the file that the audit was made of"


def test_a_changed_library_is_refused(tmp_path: Path) -> None:
    for name in pinned.FILES:
        shutil.copy(FOLDER / name, tmp_path / name)
    pinned.check(tmp_path)
    with (tmp_path / "syncobj.py").open("a") as file:
        file.write("\n")
    with pytest.raises(ReplicationError, match=r"syncobj\.py is not the file of PySyncObj"):
        pinned.check(tmp_path)


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pysyncobj.version.VERSION", "0.3.18")
    with pytest.raises(ReplicationError, match=r"pip install pysyncobj==0\.3\.17"):
        pinned.check()


def test_every_private_name_exists() -> None:
    Lone().elect()
    library = pysyncobj.SyncObj
    for name in (*pinned.CALLED, *pinned.REPLACED):
        assert callable(getattr(library, f"_SyncObj__{name}"))
    source = (FOLDER / "syncobj.py").read_text()
    for name in pinned.ATTRIBUTES:
        assert f"self.__{name}" in source
    module: Any = pysyncobj.syncobj
    for name in pinned.GLOBALS:
        assert hasattr(module, name)


def test_only_the_listed_private_names_are_used() -> None:
    listed = {*pinned.ATTRIBUTES, *pinned.CALLED, *pinned.REPLACED}
    used: set[str] = set()
    for path in Path(pinned.__file__).parent.glob("*.py"):
        used.update(re.findall(r"_SyncObj__(\w+)", path.read_text()))
    assert used == listed


def test_nothing_can_be_pickled() -> None:
    """H1, H2: bytes from the network were unpickled before the peer was authenticated."""
    Lone()
    module: Any = pysyncobj.syncobj
    for name in ("loads", "dumps", "load", "dump"):
        with pytest.raises(ReplicationError, match="pickle"):
            getattr(module.pickle, name)
    parse: Any = getattr(pysyncobj.SyncObj, "_SyncObj__parseChangeClusterRequest")  # noqa: B009
    with pytest.raises(ReplicationError, match="pickle"):
        parse(None, b"\x02membership")


def test_the_order_of_members_does_not_depend_on_the_hash_seed() -> None:
    assert [hash(Member(name)) for name in ("n0", "n1", "n2")] == [
        2625528954,
        3950597356,
        1919944022,
    ]
    assert Member("n1") == Member("n1") and Member("n1") != Member("n2")


def test_replicas_of_one_process_have_their_own_clocks() -> None:
    early, late = Lone(clock=Clock(10.0)), Lone(clock=Clock(5000.0))
    early.run(5.0)
    assert early.take(messages.PRE_VOTE)
    late.replica.turn()
    late.clock.run(0.1)
    late.replica.turn()
    assert not late.take(), "its time has not passed"
    early.elect()
    late.run(5.0)
    late.elect()
    assert early.replica.role == late.replica.role == "leader"


EVERY_KIND = [
    (messages.APPEND, 3, 7, 1, 2, 1, 1, (2, OURS + b"a", 3, NO_OP)),
    (messages.ACK, 3, 7, 9, messages.REWIND, 0),
    (messages.VOTE, 3, 9, 2, 0),
    (messages.VOTE_GRANTED, 3),
    (messages.TIMEOUT_NOW, 3),
    (messages.HIGHER_TERM, 3),
    (messages.PRE_VOTE, 3, 9, 2),
    (messages.PRE_VOTE_GRANTED, 3),
    (messages.OFFER, 3, 7, 9, 2),
    (messages.REJOINED_AT, 3, 12345, 9),
]


@pytest.mark.parametrize("message", EVERY_KIND)
def test_every_message_comes_back_from_its_bytes(message: messages.Message) -> None:
    assert decode(encode(message)) == message
    for cut in (message[:-1], (*message, 1)):
        with pytest.raises(ProtocolError):
            decode(encode(cut))
    for wrong in (-1, "x", None, 2**63, True):
        with pytest.raises(ProtocolError):
            decode(encode((message[0], wrong, *message[2:])))


@pytest.mark.parametrize(
    "entries",
    [
        (1,),
        (1, b""),
        (1, "M"),
        (1, b"\x00pickled"),
        (1, b"\x02membership"),
        (1, b"\x03version"),
        (1, NO_OP + b"x"),
        (2, OURS, 1, OURS),
        (4, OURS),
        (1, OURS + bytes(ENTRY_MAX_BYTES + 1)),
        {1: OURS},
    ],
)
def test_entries_that_are_not_ours_are_refused(entries: object) -> None:
    """H2: membership and version entries are unpickled; G1, I3: and they break the cluster."""
    lone = Lone()
    with pytest.raises(ProtocolError):
        lone.replica.receive("n1", msgpack.packb((messages.APPEND, 3, 1, 0, 1, 0, 1, entries)))
    assert lone.replica.last_index == 1 and lone.replica.term == 0


@given(st.binary(max_size=60))
def test_garbage_is_refused(data: bytes) -> None:
    try:
        message = decode(data)
    except ProtocolError:
        return
    assert decode(encode(message)) == message


def test_a_stranger_is_refused() -> None:
    with pytest.raises(ProtocolError, match="not a member"):
        Lone().replica.receive("n7", encode((messages.VOTE_GRANTED, 1)))
