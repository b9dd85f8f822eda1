"""Gearman's text commands at one node: lists in pieces, changes of functions, errors."""

import ast
from pathlib import Path

import pytest

from beanpole import commands as c
from beanpole.constants import KICKS_PER_ENTRY_MAX
from beanpole.core.users import PUT, WORK
from beanpole.events import GEARMAN
from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman.client import request
from beanpoled.audit.entry import Entry
from beanpoled.frontends.gearman import list_line, listings
from tests.unit.beanpoled.auth_scene import TOKEN, change_rights, gearman
from tests.unit.beanpoled.gearman_scene import Client, Scene, grab, handle, worker

# A packet, as a client might hide it in a name.
NOOP = b"\0RES\0\0\0\x06\0\0\0\0"
# The source, also of a module that is compiled here.
LISTINGS = Path(__file__).parents[3] / "node/beanpoled/frontends/gearman/listings.py"


@pytest.fixture
def scene() -> Scene:
    return Scene()


def submit(client: Client, kind: int, function: bytes = b"f", unique: bytes = b"") -> None:
    ((found, _),) = client.ask(kind, function, unique, b"data")
    assert found == p.JOB_CREATED


def test_lists_of_functions(scene: Scene) -> None:
    client, one, other = scene.connect(), scene.connect(), scene.connect()
    assert client.text(b"status\n") == client.text(b"prioritystatus\n") == b".\n"
    one.ask(p.CAN_DO, b"f")
    other.ask(p.CAN_DO, b"f")
    other.ask(p.CAN_DO, b"g")
    other.ask(p.CAN_DO, b"g")
    for kind in (p.SUBMIT_JOB_HIGH, p.SUBMIT_JOB_LOW_BG, p.SUBMIT_JOB_LOW, p.SUBMIT_JOB_BG):
        submit(client, kind)
    later = b"%d" % (scene.host.walls_us // 1_000_000 + 100)
    client.ask(p.SUBMIT_JOB_EPOCH, b"h", b"", later, b"data")
    one.ask(p.GRAB_JOB)
    assert client.text(b"status\n") == b"f\t4\t1\t2\ng\t0\t0\t1\nh\t1\t0\t0\n.\n"
    expected = b"f\t0\t1\t2\t2\ng\t0\t0\t0\t1\nh\t0\t1\t0\t0\n.\n"
    assert client.text(b"PriorityStatus\n") == expected
    one.connection.lost()
    scene.commit_own()
    assert client.text(b"status\n") == b"f\t4\t0\t1\ng\t0\t0\t1\nh\t1\t0\t0\n.\n"


def test_the_list_of_connections(scene: Scene) -> None:
    client, one = scene.connect(), scene.connect()
    assert one.ask(p.SET_CLIENT_ID, b"a worker") == []
    one.ask(p.CAN_DO, b"f")
    one.ask(p.CAN_DO, b"g")
    scene.client(b"stats\r\n")  # of another protocol
    assert client.text(b"workers\n") == b"1 10.0.0.1 - :\n2 10.0.0.1 a worker : g f\n.\n"
    one.ask(p.SET_CLIENT_ID, b"a b\0c")
    assert client.text(b"workers\n") == b"1 10.0.0.1 - :\n2 10.0.0.1 a b : g f\n.\n"


def test_no_name_ends_a_row_or_a_list(scene: Scene) -> None:
    client = scene.connect()
    name = b"a b\n.\n\tc\r"
    client.ask(p.CAN_DO, name)
    client.ask(p.SET_CLIENT_ID, b"one\ntwo")
    submit(client, p.SUBMIT_JOB_BG, name, b"u\n.\n")
    assert client.text(b"status\n") == b"a b?.??c?\t1\t0\t1\n.\n"
    assert client.text(b"prioritystatus\n") == b"a b?.??c?\t0\t1\t0\t1\n.\n"
    assert client.text(b"workers\n") == b"1 10.0.0.1 one?two : a b?.??c?\n.\n"
    assert client.text(b"show unique jobs\n") == b"u?.?\n.\n"


def test_no_name_begins_a_packet_in_a_list(scene: Scene) -> None:
    client = scene.connect()
    assert client.text(b"create function nul" + NOOP + b"\r\n") == b"OK\r\n"
    assert client.text(b"status\n") == b"nul\t0\t0\t0\n.\n", "as in gearmand"
    assert client.text(b"drop function nul\n") == b"OK\r\n"
    client.ask(p.CAN_DO, b"f" + NOOP)
    assert client.text(b"status\n") == b"f?RES???\x06????\t0\t0\t1\n.\n"
    assert client.text(b"prioritystatus\n") == b"f?RES???\x06????\t0\t0\t0\t1\n.\n"
    assert client.text(b"workers\n") == b"1 10.0.0.1 - : f?RES???\x06????\n.\n"


def test_lists_of_jobs(scene: Scene) -> None:
    client, one = scene.connect(), scene.connect()
    for kind, unique in ((p.SUBMIT_JOB, b"u"), (p.SUBMIT_JOB_BG, b""), (p.SUBMIT_JOB_BG, b"-")):
        submit(client, kind, unique=unique)
    scene.others((c.OPEN, 1), (c.PUT, 1, b"default", 0, 0, 60, b"of another protocol"))
    assert client.text(b"show jobs\n") == (
        b"%b\t0\t0\t0\n%b\t0\t0\t1\n%b\t0\t0\t1\n.\n" % (handle(1), handle(2), handle(3))
    )
    assert client.text(b"show unique jobs\n") == b"u\n\n-\n.\n"
    one.ask(p.CAN_DO, b"f")
    one.ask(p.GRAB_JOB)
    assert handle(1) + b"\t0\t0\t0\n" in client.text(b"show jobs\n"), "its first attempt"
    one.ask(p.CANT_DO, b"f")
    assert handle(1) + b"\t1\t0\t0\n" in client.text(b"show jobs\n"), "it came back once"


def test_spaces_at_the_end_of_a_line_are_an_argument(scene: Scene) -> None:
    client = scene.connect()
    submit(client, p.SUBMIT_JOB_BG)
    assert client.text(b"cancel job %b \n" % handle(1)) == b"ERR UNKNOWN_ERROR\r\n"
    assert client.text(b"cancel job \r\n") == b"ERR UNKNOWN_JOB\r\n"
    assert client.text(b"show jobs \r\n") == b"ERR UNKNOWN_SHOW_ARGUMENTS\r\n"
    assert client.text(b"show jobs\r\n") == handle(1) + b"\t0\t0\t1\n.\n", "it is still there"
    assert client.text(b"maxqueue \n") == b"OK\r\n"


def test_a_running_job_that_nobody_wants(scene: Scene) -> None:
    client, one, other = scene.connect(), scene.connect(), scene.connect()
    submit(client, p.SUBMIT_JOB)
    one.ask(p.CAN_DO, b"f")
    one.ask(p.GRAB_JOB)
    client.connection.lost()
    scene.commit_own()
    assert other.text(b"show jobs\n") == handle(1) + b"\t0\t1\t0\n.\n"
    assert one.ask(p.WORK_COMPLETE, handle(1), b"r") == [], "its worker may end it"
    assert other.text(b"show jobs\nstatus\n") == b".\nf\t0\t0\t1\n.\n"


def test_lines_and_packets_keep_their_order(scene: Scene) -> None:
    client = scene.connect()
    client.connection.received(
        request(p.SUBMIT_JOB_BG, b"f", b"", b"x")
        + b"status\n"
        + request(p.SUBMIT_JOB_BG, b"g", b"", b"x")
        + b"version\nworkers\nverbose\nnosuch\ngetpid\n"
        + request(p.ECHO_REQ, b"end")
    )
    scene.commit_own()
    assert client.port.take() == (
        b"\0RES\0\0\0\x08\0\0\0\x09H:stage:1f\t1\t0\t0\n.\n"
        b"\0RES\0\0\0\x08\0\0\0\x09H:stage:2OK 1.1.20\n1 10.0.0.1 - :\n.\nOK ERROR\n"
        b"ERR UNKNOWN_COMMAND Unknown+server+commandnosuch\r\nOK 1\n\0RES\0\0\0\x11\0\0\0\x03end"
    )


@pytest.mark.constants
def test_long_lists_come_in_pieces(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node does other work between pieces, and sends none to a client that does not read."""
    monkeypatch.setattr(listings, "PIECE_ROWS", 2)
    monkeypatch.setattr(listings, "WRITE_BYTES", 1)
    client = scene.connect()
    for number in range(5):
        assert client.text(b"create function f%d\n" % number) == b"OK\r\n"
    client.connection.received(b"status\nversion\n")
    scene.node.context.turn()
    ((number, batch),) = scene.node.origin._numbered.items()
    scene.apply(c.encode_entry(0, 0, 0, [(0, 1, number, batch.payload)]))
    client.connection.stall()
    scene.run()
    begun = client.port.take()
    assert begun.count(b"\n") < 5, "what was made before it was known that nobody reads"
    client.connection.unstall()
    turns = 0
    rest = b""
    while scene.host.soon:
        soon, scene.host.soon = scene.host.soon, []
        for callback in soon:
            callback()
        turns += 1
        rest += client.port.take()
    rows = b"".join(b"f%d\t0\t0\t0\n" % number for number in range(5))
    assert begun + rest == rows + b".\nOK 1.1.20\n"
    assert turns > 2


@pytest.mark.constants
@pytest.mark.parametrize(
    "what", [b"status", b"prioritystatus", b"workers", b"show jobs", b"show unique jobs"]
)
def test_a_list_leaves_in_one_write(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, what: bytes
) -> None:
    """Gearadmin treats 5 ms without a byte as the end of a list."""
    monkeypatch.setattr(listings, "PIECE_ROWS", 2)
    monkeypatch.setattr(listings, "PIECE_JOBS", 2)
    client, *_ = (scene.connect() for _ in range(5))
    for number in range(5):
        submit(client, p.SUBMIT_JOB_BG, b"f%d" % number)
    writes: list[bytes] = []
    monkeypatch.setattr(client.port, "write", writes.append)
    client.text(what + b"\n")
    (written,) = filter(None, writes)
    assert written.count(b"\n") == 6
    assert written.endswith(b"\n.\n")


@pytest.mark.constants
def test_connections_with_many_functions_come_in_pieces(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listings, "WRITE_BYTES", 1)
    names = [b"%d" % number + bytes(b"n" * 500) for number in range(100)]
    client, *workers = (scene.connect() for _ in range(6))
    for one in workers:
        one.connection.received(b"".join(request(p.CAN_DO, name) for name in names))
        scene.commit_own()
    writes: list[bytes] = []
    monkeypatch.setattr(client.port, "write", writes.append)
    client.text(b"workers\n")
    pieces = list(filter(None, writes))
    assert all(piece.endswith(b"\n") for piece in pieces), "whole lines"
    assert max(map(len, pieces)) < listings.PIECE_BYTES + 100 * 510, "not 250 KB"
    rows = [b"%d 10.0.0.1 - : %b\n" % (place, b" ".join(reversed(names))) for place in range(2, 7)]
    assert b"".join(pieces) == b"1 10.0.0.1 - :\n" + b"".join(rows) + b".\n"


@pytest.mark.constants
def test_all_lists_together_have_one_piece_in_a_turn(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three hundred clients that ask for a list of 100,000 functions stopped a node for seconds."""
    monkeypatch.setattr(listings, "PIECE_ROWS", 1)
    monkeypatch.setattr(listings, "WRITE_BYTES", 1)
    for number in range(5):
        scene.connect().text(b"create function f%d\n" % number)
    clients = [scene.connect() for _ in range(8)]
    gone = scene.connect()
    for client in (*clients, gone):
        client.connection.received(b"status\nversion\n")
    gone.connection.lost()
    scene.node.context.turn()
    ((number, batch),) = scene.node.origin._numbered.items()
    scene.apply(c.encode_entry(0, 0, 0, [(0, 1, number, batch.payload)]))
    received = [b""] * len(clients)
    while True:
        pieces = [client.port.take() for client in clients]
        assert sum(piece.count(b"\t0\t0\t0\n") for piece in pieces) <= 1
        received = [before + piece for before, piece in zip(received, pieces, strict=True)]
        if not scene.host.soon:
            break
        soon, scene.host.soon = scene.host.soon, []
        for callback in soon:
            callback()
    rows = b"".join(b"f%d\t0\t0\t0\n" % number for number in range(5))
    assert received == [rows + b".\nOK 1.1.20\n"] * len(clients)


@pytest.mark.constants
def test_few_lists_wait_for_clients_that_do_not_read(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listings, "PIECE_ROWS", 1)
    monkeypatch.setattr(listings, "WRITE_BYTES", 1)
    monkeypatch.setattr(list_line, "UNREAD_MAX", 2)
    scene.connect().text(b"create function f\n")
    clients = [scene.connect() for _ in range(4)]
    for client in clients:
        client.connection.received(b"status\n")
        client.connection.stall()
    scene.commit_own()
    assert [client.port.closed for client in clients] == [True, True, False, False]
    for client in clients[2:]:
        client.connection.unstall()
        scene.run()
        assert client.port.take() == b"f\t0\t0\t0\n.\n"


def test_no_list_is_made_at_once_by_compiled_nodes() -> None:
    """Mypyc makes a list of a generator expression."""
    nodes = ast.walk(ast.parse(LISTINGS.read_text()))
    assert not [node.lineno for node in nodes if isinstance(node, ast.GeneratorExp)]


@pytest.mark.constants
def test_a_longer_list_goes_on_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listings, "WRITE_BYTES", 4)
    pieces = [b"%d\n" % number for number in range(5)]
    assert list(listings._listed(iter(pieces))) == [b"", b"0\n1\n", b"2\n", b"3\n", b"4\n", b".\n"]


@pytest.mark.constants
def test_a_list_of_jobs_comes_in_pieces_and_whole(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listings, "PIECE_JOBS", 2)
    client = scene.connect()
    for _ in range(5):
        submit(client, p.SUBMIT_JOB_BG)
    rows = [handle(job) + b"\t0\t0\t1\n" for job in range(1, 6)]
    assert client.text(b"show jobs\n") == b"".join(rows) + b".\n"


def test_the_bound_of_a_function(scene: Scene) -> None:
    client = scene.connect()
    assert client.text(b"maxqueue f 1\n") == b"OK\r\n", "it is not there, so nothing happens"
    submit(client, p.SUBMIT_JOB_BG, unique=b"u")
    submit(client, p.SUBMIT_JOB_BG)
    assert client.text(b"maxqueue f 2 0 1\n") == b"OK\r\n"
    full = [(p.ERROR, (b"QUEUE_ERROR", b"Job queue is full"))]
    assert client.ask(p.SUBMIT_JOB_HIGH, b"f", b"", b"x") == full
    assert client.ask(p.SUBMIT_JOB_LOW, b"f", b"", b"x") == full
    submit(client, p.SUBMIT_JOB)
    submit(client, p.SUBMIT_JOB_HIGH, unique=b"u")  # no new job
    assert client.text(b"maxqueue f\n") == b"OK\r\n"
    submit(client, p.SUBMIT_JOB_HIGH)


def test_functions_come_and_go(scene: Scene) -> None:
    client, one = scene.connect(), scene.connect()
    assert client.text(b"create function foo\n") == b"OK\r\n"
    assert client.text(b"create function bar\r\n") == b"OK\r\n"
    assert client.text(b"status\n") == b"foo\t0\t0\t0\nbar\t0\t0\t0\n.\n"
    assert client.text(b"drop function nosuch\n") == b"ERR function not found\r\n"
    one.ask(p.CAN_DO, b"foo")
    busy = b"ERR there are still connected workers or executing clients\r\n"
    assert client.text(b"drop function foo\n") == busy
    one.connection.lost()
    scene.commit_own()
    submit(client, p.SUBMIT_JOB, b"foo")
    dropped = client.text(b"drop function foo\n")
    failed = p.HEADER.pack(p.REPLY_MAGIC, p.WORK_FAIL, len(handle(1))) + handle(1)
    assert sorted(dropped) == sorted(failed + b"OK\r\n"), "its jobs go with it"
    assert client.text(b"status\n") == b"bar\t0\t0\t0\n.\n"


def test_a_function_with_many_jobs_is_dropped_in_steps(scene: Scene) -> None:
    client = scene.connect()
    many = KICKS_PER_ENTRY_MAX + 10
    client.connection.received(request(p.SUBMIT_JOB_BG, b"f", b"", b"x") * many)
    scene.commit_own()
    client.replies()
    client.connection.received(b"drop function f\nstatus\n")
    assert len(scene.commit_own()) > 2
    assert client.port.take() == b"OK\r\n.\n"
    assert not scene.machine.queue.jobs


def test_a_job_is_cancelled(scene: Scene) -> None:
    client, admin, one = scene.connect(), scene.connect(), scene.connect()
    submit(client, p.SUBMIT_JOB)
    assert admin.text(b"cancel job %b\n" % handle(1)) == b"OK\r\n"
    assert client.replies() == [(p.WORK_FAIL, (handle(1),))]
    for unknown in (handle(1), b"H:nope:1", b"x"):
        assert admin.text(b"cancel job %b\n" % unknown) == b"ERR UNKNOWN_JOB\r\n"
    scene.others((c.OPEN, 1), (c.PUT, 1, b"default", 0, 0, 60, b"of another protocol"))
    (other,) = scene.machine.queue.jobs.values()
    assert admin.text(b"cancel job %b\n" % handle(other.id)) == b"ERR UNKNOWN_JOB\r\n"
    submit(client, p.SUBMIT_JOB)
    one.ask(p.CAN_DO, b"f")
    one.ask(p.GRAB_JOB)
    assert admin.text(b"cancel job %b\n" % handle(other.id + 1)) == b"ERR JOB_IS_RUNNING\r\n"
    assert one.ask(p.WORK_COMPLETE, handle(other.id + 1), b"r") == []
    assert client.replies() == [(p.WORK_COMPLETE, (handle(other.id + 1), b"r"))]


def test_a_job_that_comes_back_at_once_was_running_when_it_was_not_cancelled(scene: Scene) -> None:
    client, admin, one = scene.connect(), scene.connect(), worker(scene, b"f")
    submit(client, p.SUBMIT_JOB_BG)
    assert grab(one) == 1
    admin.connection.received(b"cancel job %b\n" % handle(1))
    one.send(p.CANT_DO, b"f")
    scene.commit_own()
    assert scene.machine.queue.ready == 1
    assert admin.port.take() == b"ERR JOB_IS_RUNNING\r\n"


def test_a_worker_does_not_cancel_its_own_job(scene: Scene) -> None:
    told: list[Entry] = []
    scene.node.clients.audit = told.append
    client, one = scene.connect(), worker(scene, b"f")
    submit(client, p.SUBMIT_JOB)
    assert grab(one) == 1
    assert one.text(b"cancel job %b\n" % handle(1)) == b"ERR JOB_IS_RUNNING\r\n"
    assert [(one.method, one.outcome) for one in told] == [
        ("gearman/cancel job", "ERR JOB_IS_RUNNING")
    ]
    assert client.replies() == []
    assert one.ask(p.WORK_COMPLETE, handle(1), b"r") == []
    assert client.replies() == [(p.WORK_COMPLETE, (handle(1), b"r"))]


def test_a_worker_without_the_right_is_not_told_of_its_own_job() -> None:
    scene, one = gearman((b"f", PUT | WORK))
    one.text(b"auth %b\n" % TOKEN)
    one.ask(p.CAN_DO, b"f")
    submit(one, p.SUBMIT_JOB_BG)
    assert grab(one) == 1
    change_rights(scene, GEARMAN, (b"f", PUT))
    denied = b"ERR ACCESS_DENIED The+user+may+not+do+this\r\n"
    assert one.text(b"cancel job %b\n" % handle(1)) == denied
    assert len(scene.machine.queue.jobs) == 1


def test_a_worker_cancels_a_job_behind_its_own_report(scene: Scene) -> None:
    client, one = scene.connect(), worker(scene, b"f")
    for _ in range(2):
        submit(client, p.SUBMIT_JOB_BG)
        grab(one)
    line = b"cancel job %b\n"
    one.connection.received(request(p.WORK_COMPLETE, handle(1), b"r") + line % handle(1))
    scene.commit_own()
    assert one.port.take() == b"ERR UNKNOWN_JOB\r\n"
    one.connection.received(request(p.CANT_DO, b"f") + line % handle(2))
    scene.commit_own()
    assert one.port.take() == b"OK\r\n", "it had given the job back"
    assert not scene.machine.queue.jobs


def test_a_node_is_shut_down_if_it_may(scene: Scene) -> None:
    unknown = b"ERR UNKNOWN_COMMAND Unknown+server+commandshutdown\r\n"
    assert scene.connect().text(b"shutdown graceful\n") == unknown
    assert not scene.node.context.stopping
    scene = Scene(gearman_shutdown="on")
    assert scene.connect().text(b"shutdown\n").startswith(b"OK\r\n")
    assert scene.node.context.stopping
