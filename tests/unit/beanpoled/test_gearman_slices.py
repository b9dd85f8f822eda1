"""Jobs of Gearman with many clients: these are told in slices, each effect in its order."""

import pytest

from beanpole import commands as c
from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman.client import Reply, request
from beanpoled.frontends import listeners
from tests.unit.beanpoled.gearman_scene import (
    Client,
    Scene,
    created,
    grab,
    handle,
    submit,
    worker,
)
from tests.unit.core.cluster import copy_of

CLIENTS = 6
PIECES = 10


@pytest.fixture
def scene() -> Scene:
    return Scene()


def limit_steps(scene: Scene, monkeypatch: pytest.MonkeyPatch, tellings_max: int) -> None:
    """Limit the notifications of each step of the loop, the present one too."""
    monkeypatch.setattr(listeners, "TELLINGS_PER_STEP_MAX", tellings_max)
    scene.node.clients.listeners._left = tellings_max


def waiting(scene: Scene) -> tuple[list[Client], Client]:
    """Connect clients of this node that wait for the same job, and a worker that has it."""
    clients = [scene.connect() for _ in range(CLIENTS)]
    for client in clients:
        assert submit(client, unique=b"u") == created(1)
    one = worker(scene, b"f")
    grab(one)
    return clients, one


def step(scene: Scene) -> None:
    """Let the loop do what is requested at this moment, and no more."""
    soon, scene.host.soon = scene.host.soon, []
    for callback in soon:
        callback()


def report(scene: Scene, one: Client, pieces: range, end: bool = False) -> None:
    """Apply an entry with data, and with the end of the job, without a step behind it."""
    packets = [request(p.WORK_DATA, handle(1), b"%d" % piece) for piece in pieces]
    if end:
        packets.append(request(p.WORK_COMPLETE, handle(1), b"end"))
    one.connection.received(b"".join(packets))
    scene.node.origin.send()
    (batch,) = scene.node.origin._numbered.values()
    scene.apply(c.encode_entry(0, 0, 0, [(0, 1, batch.number, batch.payload)]))


def data(pieces: range) -> list[Reply]:
    """Return the packets with which a client is told of data."""
    return [(p.WORK_DATA, (handle(1), b"%d" % piece)) for piece in pieces]


END: Reply = (p.WORK_COMPLETE, (handle(1), b"end"))


@pytest.mark.constants
def test_an_entry_is_told_in_slices_and_in_order(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_steps(scene, monkeypatch, 8)
    clients, one = waiting(scene)
    heard: list[list[Reply]] = [[] for _ in clients]
    report(scene, one, range(PIECES))
    steps = 0
    while True:
        fresh = [client.replies() for client in clients]
        assert sum(map(len, fresh)) <= 8
        for replies, more in zip(heard, fresh, strict=True):
            replies += more
        if not scene.host.soon:
            break
        steps += 1
        if steps == 2:  # a later entry overtakes nothing
            report(scene, one, range(PIECES, 2 * PIECES), end=True)
            fresh = [client.replies() for client in clients]
            assert sum(map(len, fresh)) <= 8
            for replies, more in zip(heard, fresh, strict=True):
                replies += more
        step(scene)
    assert heard == [[*data(range(2 * PIECES)), END]] * CLIENTS
    assert steps > CLIENTS * 2 * PIECES // 8
    assert not scene.node.clients.listeners._untold_bytes


@pytest.mark.constants
def test_clients_come_and_go_while_effects_wait(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client is told of nothing before its submission, and one that has gone of nothing more."""
    limit_steps(scene, monkeypatch, 4)
    clients, one = waiting(scene)
    late = scene.connect()
    late.send(p.SUBMIT_JOB, b"f", b"u", b"x")
    (batch,) = scene.node.origin._numbered.values()
    submission = (0, 1, batch.number, batch.payload)
    monkeypatch.setattr(scene.host, "soon", [])
    one.connection.received(b"".join(request(p.WORK_DATA, handle(1), b"%d" % n) for n in range(3)))
    scene.node.origin.send()
    first = scene.node.origin._numbered[batch.number + 1]
    # Its submission is in an entry of its own, which is applied before all of the data is told.
    scene.apply(c.encode_entry(0, 0, 0, [submission]))
    scene.apply(c.encode_entry(0, 0, 0, [(0, 1, first.number, first.payload)]))
    later = scene.connect()
    later.connection.received(request(p.SUBMIT_JOB, b"f", b"u", b"x"))
    scene.node.origin.send()
    (batch,) = scene.node.origin._numbered.values()
    scene.apply(c.encode_entry(0, 0, 0, [(0, 1, batch.number, batch.payload)]))
    clients[-1].connection.lost()
    assert scene.node.clients.listeners._untold
    scene.run()
    assert late.replies() == [*created(1), *data(range(3))]
    assert later.replies() == created(1), "what happened before is not told"
    assert clients[0].replies() == data(range(3))
    assert clients[-1].replies() == []
    one.connection.received(request(p.WORK_COMPLETE, handle(1), b"end"))
    scene.commit_own()
    assert [client.replies() for client in (clients[0], late, later)] == [[END]] * 3


@pytest.mark.constants
def test_a_snapshot_tells_behind_the_effects_that_wait(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_steps(scene, monkeypatch, 2)
    clients, one = waiting(scene)
    report(scene, one, range(PIECES), end=True)
    scene.load(copy_of(scene.machine))
    assert [client.replies() for client in clients] == [[*data(range(PIECES)), END]] * CLIENTS
    assert not any(client.port.closed for client in clients)


@pytest.mark.constants
@pytest.mark.parametrize(("name", "limit"), [("UNTOLD_MAX", 4), ("UNTOLD_BYTES_MAX", 4)])
def test_few_effects_wait(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, name: str, limit: int
) -> None:
    """Effects beyond the limit are told at once, because no client may miss one."""
    limit_steps(scene, monkeypatch, 2)
    monkeypatch.setattr(listeners, name, limit)
    clients, one = waiting(scene)
    for number in range(3):
        report(scene, one, range(3 * number, 3 * number + 3))
        assert len(scene.node.clients.listeners._untold) <= limit
    heard = [client.replies() for client in clients]
    assert len(heard[0]) >= 9 - limit - 1
    scene.run()
    for replies, client in zip(heard, clients, strict=True):
        assert [*replies, *client.replies()] == data(range(9))


@pytest.mark.constants
def test_several_entries_of_one_step_share_its_room(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that is behind applies many entries in a step."""
    limit_steps(scene, monkeypatch, 8)
    clients, one = waiting(scene)
    scene.run()
    for number in range(4):
        report(scene, one, range(number, number + 1))
    heard = [client.replies() for client in clients]
    assert sum(map(len, heard)) <= 8
    scene.run()
    for replies, client in zip(heard, clients, strict=True):
        assert [*replies, *client.replies()] == data(range(4))


@pytest.mark.constants
def test_each_copy_for_one_client_counts(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_steps(scene, monkeypatch, 8)
    client, one = scene.connect(), worker(scene, b"f")
    for _ in range(4):
        submit(client, unique=b"u")
    grab(one)
    report(scene, one, range(PIECES))
    assert len(client.replies()) == 8
    scene.run()
    assert len(client.replies()) == 4 * PIECES - 8
