"""`beanpole doctor`: problems that nodes find with themselves, and in all nodes together."""

import asyncio
import json
import re
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from beanpole.client import rpc
from beanpole.client.expiry import expires_s
from beanpole.core.users import (
    ADMIN,
    ANONYMOUS,
    ANY_RIGHT,
    EVERYWHERE,
    OPEN,
    PUT,
    Rights,
    User,
    Users,
)
from beanpole.pb import admin_pb2, node_pb2
from beanpoled import checking
from beanpoled.checking import _certificates
from beanpoled.cli import doctor, main, status
from beanpoled.cli.doctor import clocks, replicas
from beanpoled.examining import ERROR, OK, WARNING, Finding, examine
from beanpoled.rpc.admin import RpcServer
from beanpoled.rpc.node_admin import NodeAdminServicer
from beanpoled.rpc.peer import PeerClient
from beanpoled.rpc.server import Context, fail
from beanpoled.view import ClientFigures, Digests, Metrics, QlessFigures, QueueFigures
from tests.integration.support.authority import Authority, begun
from tests.unit.beanpoled.fakes import FakeSettings, FakeView, trust_of
from tests.unit.node.stage import config

GIB = 1 << 30
PREFIXES = ("tls_", "peer_tls_")


def well() -> FakeView:
    """Return a node without problems."""
    view = FakeView()
    view.numbers = Metrics(
        fsyncs_total=100,
        fsync_seconds_total=0.1,
        disk_free_bytes=100 * GIB,
        disk_reserve_bytes=GIB,
        clients={"beanstalk": ClientFigures(5)},
        queues=[QueueFigures("beanstalk", "mail", 1, ready_s=3.0)],
    )
    view.job_counts = view.job_counts._replace(buried=0)
    return view


def found(view: FakeView, anonymous: User = OPEN, **settings: Any) -> dict[str, Finding]:
    made = examine(view, config(**settings), anonymous, time.time())
    return {one.name: one for one in made}


def wrong(view: FakeView, anonymous: User = OPEN, **settings: Any) -> dict[str, str]:
    """Return the levels of all problems; each has a remedy, other findings have none."""
    made = found(view, anonymous, **settings)
    assert all(bool(one.remedy) == (one.level != OK) for one in made.values())
    return {name: one.level for name, one in made.items() if one.level != OK}


def test_nothing_is_wrong() -> None:
    assert wrong(well()) == {}
    assert found(well())["disk room"].words == "102400 MiB are free, puts end below 1024 MiB"


def changed(**attributes: Any) -> FakeView:
    view = well()
    for name, value in attributes.items():
        target = view.numbers if hasattr(view.numbers, name) else view
        assert hasattr(target, name)
        setattr(target, name, value)
    return view


@pytest.mark.parametrize(
    ("attributes", "name", "level"),
    [
        ({"serving": False, "state": "starting"}, "serving", ERROR),
        ({"draining": True}, "draining", WARNING),
        ({"durability": "memory"}, "durability", WARNING),
        ({"disk_free_bytes": GIB - 1}, "disk room", ERROR),
        ({"disk_free_bytes": 2 * GIB - 1}, "disk room", WARNING),
        ({"disk_hangs": True}, "disk", ERROR),
        ({"disk_is_behind": True}, "disk", ERROR),
        ({"disk_full": True}, "disk room", ERROR),
        ({"fsync_seconds_total": 5.1}, "disk sync", WARNING),
        ({"loop_lag_seconds_mean": 0.101}, "loop", WARNING),
        ({"fsync_seconds_last": 0.21}, "disk sync", WARNING),
        ({"snapshot_behind_bytes": GIB}, "snapshot", WARNING),
        ({"events_lost_total": 3}, "events", WARNING),
        ({"queues": [QueueFigures("workq", "slow", 1, ready_s=3601.0)]}, "ready jobs", WARNING),
        ({"clients": {"gearman": ClientFigures(12_801)}}, "connections", WARNING),
    ],
)
def test_what_a_node_finds(attributes: dict[str, Any], name: str, level: str) -> None:
    assert wrong(changed(**attributes)) == {name: level}


def test_a_disk_that_has_become_slow_is_not_hidden_by_its_past() -> None:
    """The mean is that since the start."""
    past = {"fsyncs_total": 1_000_000, "fsync_seconds_total": 1600.0}
    slow = found(changed(**past, fsync_seconds_last=0.482))["disk sync"]
    assert slow.level == WARNING and slow.remedy
    assert slow.words == "1.6 ms on average, but the last took 0.482 s"
    # A good disk may have to write out what others left in its cache.
    good = found(changed(**past, fsync_seconds_last=0.2))["disk sync"]
    assert good.level == OK and good.words == "1.6 ms on average, the last took 0.200 s"


def test_buried_jobs() -> None:
    view = well()
    view.job_counts = view.job_counts._replace(buried=4)
    assert wrong(view) == {"buried jobs": WARNING}


@pytest.mark.parametrize(
    ("buried", "names"),
    [
        (5, {"buried jobs", "failed jobs of qless"}),
        (3, {"failed jobs of qless"}),
        (2, {"failed jobs of qless"}),
    ],
)
def test_failed_jobs_of_qless_are_not_for_the_commands_of_other_jobs(
    buried: int, names: set[str]
) -> None:
    """The number of buried jobs has them, too; it may be an older one."""
    view = changed(qless=QlessFigures(failed=3))
    view.job_counts = view.job_counts._replace(buried=buried)
    assert wrong(view) == dict.fromkeys(names, WARNING)
    made = found(view)
    failed = made["failed jobs of qless"]
    assert failed.words == "3 jobs failed" and "`unfail`" in failed.remedy
    assert "beanpole queue kick" not in failed.remedy
    assert made["buried jobs"].words == ("2 jobs are buried" if buried == 5 else "none")


def test_ports_that_others_reach() -> None:
    assert wrong(well(), listen=("0.0.0.0:11300",)) == {"client ports": WARNING}
    assert wrong(well(), listen=("tls:0.0.0.0:11300",)) == {"client ports": WARNING}
    both = ("tls:0.0.0.0:11300", "unix:/run/b")
    assert "client ports" not in wrong(well(), listen=both, tls_client_ca_file="ca.pem")
    assert wrong(well(), listen=("tls:127.0.0.1:11300", "127.0.0.1:1")) == {}
    assert wrong(well(), grpc_listen="0.0.0.0:1") == {"gRPC": WARNING}
    assert wrong(well(), grpc_listen="0.0.0.0:1", peer_tls_certificate_file="none") == {
        "peer_tls_certificate_file": ERROR
    }


@pytest.mark.parametrize(
    ("rights", "is_open"),
    [
        ((), False),
        (((b"intake", PUT),), False),
        (((EVERYWHERE, ANY_RIGHT & ~ADMIN),), False),
        (((b"mail", ADMIN),), True),
        (((EVERYWHERE, ANY_RIGHT),), True),
        (None, True),
    ],
)
def test_a_cluster_is_open_by_the_rights_without_a_token(
    rights: Rights | None, is_open: bool
) -> None:
    """A user with all rights makes no difference: others need no token until `anonymous` is set."""
    users = Users()
    rows = {b"root": User(b"root", (bytes(32),), ((EVERYWHERE, ANY_RIGHT),))}
    if rights is not None:
        rows[ANONYMOUS] = User(ANONYMOUS, (), rights)
    users.change(rows)
    ports = {"listen": ("0.0.0.0:11300",), "grpc_listen": "0.0.0.0:1"}
    expected = {"gRPC": WARNING, "client ports": WARNING} if is_open else {}
    assert wrong(well(), users.anonymous, **ports) == expected
    if is_open:
        remedies = [found(well(), users.anonymous, **ports)[name].remedy for name in expected]
        assert all("`beanpole user set anonymous`" in remedy for remedy in remedies)


@pytest.mark.parametrize(("days", "level"), [(90, OK), (29, WARNING), (20_000, OK)])
def test_the_end_of_a_certificate(tmp_path: Path, days: int, level: str) -> None:
    """Times are in openssl's form; after 2049 certificates encode them differently."""
    path, key = tmp_path / "c.pem", tmp_path / "c.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-subj", "/CN=a", "-days", str(days), "-out", str(path)]
    command += ["-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert abs(expires_s(str(path)) - time.time() - days * 86_400) < 60
    pair = {"tls_certificate_file": str(path), "tls_key_file": str(key)}
    assert levels(time.time(), **pair) == ({} if level == OK else {"tls_certificate_file": level})
    assert levels(time.time() + 86_400 * days, **pair)["tls_certificate_file"] in (ERROR, WARNING)
    path.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    assert levels(time.time(), **pair) == {"tls_certificate_file": ERROR}


def levels(now_s: float, **settings: Any) -> dict[str, str]:
    """Return the levels of all problems of a node with these settings at a time."""
    made = examine(well(), config(**settings), OPEN, now_s)
    return {one.name: one.level for one in made if one.level != OK}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """The settings of a node with TLS and lists of revoked certificates, all for 30 days."""
    authority, certificate, key = begun(tmp_path / "ca")
    own = {"certificate": certificate, "key": key, "crl": authority.revoke()}
    made = {f"{prefix}{part}_file": path for prefix in PREFIXES for part, path in own.items()}
    return made | {"tls_client_ca_file": authority.ca, "peer_tls_ca_file": authority.ca}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_end_of_a_ca_and_of_a_list_of_revoked_certificates(
    files: dict[str, str], prefix: str, tmp_path: Path
) -> None:
    """A node with a list that has expired accepts no certificate."""
    first_s = time.time() - 3600  # 30 days from now are then more than 30 days away
    assert levels(first_s, **files) == {}
    lasting = {name for name in files if not name.endswith("key_file")}
    assert levels(first_s + 86_400, **files) == dict.fromkeys(lasting, WARNING)
    assert levels(first_s + 86_400 * 31, **files) == dict.fromkeys(lasting, ERROR)
    old = Authority(tmp_path / "old")
    setting = f"{prefix}crl_file"
    files[setting] = old.revoke(until="20200102000000Z")
    assert levels(first_s, **files) == {setting: ERROR}
    weights = {one.words.partition(":")[0]: one.weight for one in _certificates(config(**files))}
    assert weights.pop(setting) == checking.WRONG
    assert set(weights.values()) == {checking.WARNING}, "the others end in less than 30 days"


def test_files_that_other_nodes_would_refuse(files: dict[str, str], tmp_path: Path) -> None:
    """A node that runs says so as well as a start."""
    first_s = time.time() - 3600
    _, certificate, key = begun(tmp_path / "other")
    pair = {"peer_tls_certificate_file": certificate, "peer_tls_key_file": key}
    assert levels(first_s, **{**files, **pair}) == {"peer_tls_* files": ERROR}
    assert levels(first_s, **{**files, "tls_key_file": key}) == {"tls_* files": ERROR}


def test_a_list_of_another_ca(files: dict[str, str], tmp_path: Path) -> None:
    """It lets no client in, whether or not the node's own certificate is of the clients' CA."""
    first_s = time.time() - 3600
    same_name = Authority(tmp_path / "same")
    files["tls_crl_file"] = same_name.revoke()
    assert levels(first_s, **files) == {"tls_crl_file": WARNING}
    words = [one.words for one in _certificates(config(**files)) if one.weight == checking.WARNING]
    assert any("is of no CA in tls_client_ca_file" in one for one in words)
    other, *_ = begun(tmp_path / "other", "Other CA")
    files |= {"tls_client_ca_file": other.ca}
    assert levels(first_s, **files) == {"tls_crl_file": WARNING}
    assert levels(first_s, **{**files, "tls_crl_file": other.revoke()}) == {}


# --- all nodes together ---------------------------------------------------------------------------


def cluster(
    change: Callable[[list[FakeView]], None],
    *words: str,
    away: bool = False,
    alone: bool = False,
    first: str = "",
) -> int:
    """Run the command against two fake nodes; with `away`, the third is down; `alone`: a second.

    The command asks at the address `first` before those of the nodes.
    """
    names = ("n0", "n1", "n2") if away else ("n0", "n1")
    views = [FakeView(name, names) for name in names[:2]]
    views[1].role = "leader"
    for view, other in zip(views, reversed(views), strict=True):
        view.live_links = (other.node_id,)
        view.machine_version = view.machine_version_known
    change(views)

    async def run() -> int:
        addresses = {"n1": "127.0.0.1:1", "n2": "127.0.0.1:1"}
        peers = PeerClient(addresses, trust_of())
        servers = []
        for view in views[:1] if alone else views:
            audit: Any = None
            service = NodeAdminServicer(view, peers, audit, FakeSettings(view.node_id)).add_to
            servers.append(RpcServer(view, peers, trust_of(), [service]))
            addresses[view.node_id] = f"127.0.0.1:{await servers[-1].start('127.0.0.1:0')}"
        targets = f"{first},{addresses['n0']}" if first else addresses["n0"]
        done = await asyncio.to_thread(main, ["doctor", "--addr", targets, *words])
        await peers.close()
        for server in servers:
            await server.stop(0)
        return done

    return asyncio.run(run())


def test_a_cluster_that_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert cluster(lambda views: None) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["ok members: all 2 answer", "ok leader: n1 in term 3"]
    assert "ok n0 disk room: much" in lines and "ok n1 disk room: much" in lines
    assert lines[-1].startswith("ok clocks: ")


def test_one_member_is_away(capsys: pytest.CaptureFixture[str]) -> None:
    assert cluster(lambda views: None, away=True) == 1
    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith("error members: n2 of 3 cannot be reached; start them")


@pytest.mark.parametrize(
    ("links", "words"),
    [
        (("n1",), "n1 in term 3, and its gRPC cannot be reached; look at its grpc_listen, "),
        ((), "there is none; ask again; "),
    ],
)
def test_a_leader_whose_grpc_cannot_be_reached(
    capsys: pytest.CaptureFixture[str], links: tuple[str, ...], words: str
) -> None:
    """One that has no links either is down, and others name it until they notice."""
    assert cluster(lambda views: setattr(views[0], "live_links", links), alone=True) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("error members: n1 of 2 cannot be reached; ")
    assert lines[1].startswith(f"error leader: {words}")


def test_the_time_at_an_address_that_hangs_is_no_difference_of_clocks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of it was, for the node that was examined first."""
    monkeypatch.setattr(rpc, "HEALTH_TIMEOUT_S", 1.0)
    monkeypatch.setattr(status, "STATUS_TIMEOUT_S", 1.0)
    monkeypatch.setattr(doctor, "CLOCK_DIFFERENCE_MAX_S", 0.4)
    with socket.create_server(("127.0.0.1", 0)) as hung:
        assert cluster(lambda views: None, first=f"127.0.0.1:{hung.getsockname()[1]}") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    told = re.fullmatch(r"ok clocks: those of the nodes are at most (\S+) s apart", last)
    assert told is not None and 0 < float(told[1]) < 1.0


@pytest.mark.parametrize(
    ("differences", "level", "words"),
    [
        ([(-0.01, 0.01), (0.0, 0.02), (-0.02, 0.0)], OK, "at most 0.040 s apart"),
        ([(-3.0, 0.0), (0.0, 0.01)], OK, "at most 3.010 s apart"),  # one call took 3 s
        ([(4.9, 5.0), (-0.1, 0.0), (0.0, 0.1)], WARNING, "at least 4.900 s apart: a is ahead of b"),
        ([(-5.0, -4.0), (-0.1, 0.0)], WARNING, "at least 3.900 s apart: b is ahead of a"),
    ],
)
def test_clocks(differences: list[tuple[float, float]], level: str, words: str) -> None:
    made = clocks(dict(zip("abc", differences, strict=False)))
    assert (made.level, made.words) == (level, f"those of the nodes are {words}")
    assert bool(made.remedy) == (level != OK)


def test_one_node_alone_tells_nothing_of_replicas_and_links(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cluster(lambda views: None, away=True, alone=True) == 1
    names = [line.split(":")[0].partition(" ")[2] for line in capsys.readouterr().out.splitlines()]
    assert "members" in names and not {"replicas", "links"} & {*names}


def test_a_caller_without_the_right_is_told_to_give_a_token(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_self: object, _request: object, context: Context) -> None:
        await fail(context, grpc.StatusCode.PERMISSION_DENIED, "it lacks the right admin")

    monkeypatch.setattr(NodeAdminServicer, "Examine", refuse)
    assert cluster(lambda views: None) == 1
    *others, last = capsys.readouterr().out.splitlines()
    assert last.startswith("warning nodes: none was examined: it lacks the right admin; give ")
    assert "BEANPOLE_TOKEN_FILE" in last and all(line.startswith("ok ") for line in others)


@pytest.mark.parametrize(
    ("attribute", "value", "name", "level"),
    [
        ("role", "follower", "leader", ERROR),
        ("version", "9", "versions", WARNING),
        ("machine_version", 2, "machine versions", WARNING),
        ("config_hash", "other", "configurations", WARNING),
        ("birth", "00", "birth ids", WARNING),
        ("live_links", (), "links", ERROR),
        ("told", Digests(9, 11, 5, 13, 4), "replicas", ERROR),
    ],
)
def test_what_all_show_together(
    capsys: pytest.CaptureFixture[str], attribute: str, value: Any, name: str, level: str
) -> None:
    assert cluster(lambda views: setattr(views[1], attribute, value), "--json") == 1
    made = [Finding(**one) for one in json.loads(capsys.readouterr().out)]
    bad = [one for one in made if one.level != OK]
    assert [(one.name, one.level) for one in bad] == [(name, level)]
    assert bad[0].remedy


def test_a_disk_that_waits_to_rejoin_lacks_no_link(capsys: pytest.CaptureFixture[str]) -> None:
    """It has none before it knows its cluster; firewalls were blamed for that."""

    def empty(views: list[FakeView]) -> None:
        views[1].birth, views[1].rejoining, views[1].live_links = "", True, ()

    cluster(empty, "--json")
    found = {one["name"]: one["level"] for one in json.loads(capsys.readouterr().out)}
    assert found["links"] == OK


SAME = Digests(8, 11, 5, 12, 4)
INSPECT = "keep its data directory for inspection, start it with --rejoin on an empty one; "


@pytest.mark.parametrize(
    ("told", "level", "words", "remedy"),
    [
        ((SAME, SAME, SAME), OK, "n0, n1, n2 have the same state at index 8", ""),
        # Images of the same index are compared when the nodes have moved on since.
        (
            (SAME, SAME._replace(state_index=9, state_hash=1), None),
            OK,
            "n0, n1 have the same state at index 5",
            "",
        ),
        (
            (SAME, SAME._replace(image_digest=1), SAME),
            ERROR,
            "n1 differs from n0, n2 at index 5 (the digest of its image)",
            f"stop n1, {INSPECT}",
        ),
        (
            (SAME, SAME, SAME._replace(state_hash=1, image_version=3)),
            ERROR,
            "n2 differs from n0, n1 at index 8 (the state hash)",
            f"stop n2, {INSPECT}",
        ),
        (
            (SAME, SAME._replace(image_digest=1), None),
            ERROR,
            "n0 and n1 differ at index 5 (the digest of its image), and no side is a majority",
            "start the members that are away; keep all",
        ),
        # Images of different versions or indices are not compared.
        (
            (SAME, Digests(9, 1, 5, 1, 3), Digests(7, 1, 4, 1, 4)),
            OK,
            "no two nodes were at the same index: ask again in a minute",
            "",
        ),
        ((SAME,), OK, "the cluster has one node, there is none to compare it with", ""),
        ((SAME, None, None), OK, "no two nodes were at the same index: ask again in a minute", ""),
    ],
)
def test_replicas(told: list[Digests | None], level: str, words: str, remedy: str) -> None:
    """A node without digests is away, or of a release without them."""
    nodes = [
        node_pb2.Node(id=f"n{place}", digests=one and node_pb2.Digests(**one._asdict()))
        for place, one in enumerate(told)
    ]
    made = replicas(admin_pb2.StatusReply(nodes=nodes))
    assert (made.level, made.name, made.words) == (level, "replicas", words)
    assert made.remedy.startswith(remedy) and bool(made.remedy) == (level != OK)


# --- without a cluster ----------------------------------------------------------------------------


def test_a_configuration_and_a_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "node.toml"
    path.write_text("jobs_max = 0\n")
    (tmp_path / "empty").mkdir()
    assert main(["doctor", str(path), str(tmp_path / "empty"), str(tmp_path / "none")]) == 1
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.startswith(f"error {path}: jobs_max = 0") and "fix it; docs/operating.md" in first
    assert second.startswith(f"error {tmp_path / 'empty'}: ")
    assert third.startswith(f"error {tmp_path / 'none'}: it does not exist; name a data directory")


def test_a_configuration_that_the_system_does_not_show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert main(["doctor", str(loop)]) == 1
    assert f"cannot read {loop}: Too many levels of symbolic links" in capsys.readouterr().out
