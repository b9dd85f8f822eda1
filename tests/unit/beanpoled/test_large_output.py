"""Large outputs: those of many clients are written in steps of the loop, and share their bytes."""

import pytest

from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman import replies
from beanpole.protocol.gearman.client import request
from beanpoled.frontends import large_output
from beanpoled.frontends.clients import REFUSED_MAX
from beanpoled.frontends.gearman import list_line, listings
from beanpoled.frontends.large_output import STEP_BYTES
from beanpoled.frontends.requests import LINE_OUTPUTS_MAX, RequestConnection
from tests.unit.beanpoled.follower_scene import FollowerScene
from tests.unit.node.stage import Port

SIZE = 60_000
BODY = bytes(SIZE)
FOUND = b"FOUND 1 %d\r\n%b\r\n" % (SIZE, BODY)
# The most that one step writes: the last output may begin just below the limit.
WRITTEN_MAX = STEP_BYTES + len(FOUND)
# No test needs as many steps of the loop.
STEPS_MAX = 10_000
# So many clients are sent three times as much.
MANY = 3 * STEP_BYTES // SIZE
JOB = b"6ba7b810-9dad-41d1-80b4-00c04fd430c4"


class Scene(FollowerScene):
    """A follower that has a job with a large body, and counts the steps of its loop."""

    def __init__(self, client_output_bytes_max: int = 8 * 1024 * 1024) -> None:
        self.steps = 0
        super().__init__(client_output_bytes_max=client_output_bytes_max)
        self.connect().received(b"put 0 0 60 %d\r\n%b\r\n" % (SIZE, BODY))
        self.commit_own()

    def run(self) -> None:
        while self.host.soon:
            self.steps += 1
            assert self.steps < STEPS_MAX, "the loop does not come to rest"
            soon, self.host.soon = self.host.soon, []
            for callback in soon:
                callback()

    def halt_line(self) -> None:
        """Let clients leave so much unread that nothing of the line is written."""
        unread = self.node.clients.unread
        unread.bytes = 2 * unread.bytes_max + 1

    def end_step(self) -> None:
        """Let the present step have written all that it may."""
        self.node.clients.large._written = STEP_BYTES

    def let_line_go_on(self) -> None:
        """Let clients read all, and write what is in the line."""
        self.node.clients.unread.bytes = 0
        self.node.clients.run_periodic()
        self.run()

    def connect(self, protocol: str = "beanstalk", port: Port | None = None) -> RequestConnection:
        connection = self.node.frontends[protocol].connected(port or Port())
        assert isinstance(connection, RequestConnection)
        return connection

    def ports(self, count: int, requests: bytes, protocol: str = "beanstalk") -> list["StepPort"]:
        """Let many clients send requests in one moment."""
        ports = [StepPort(self) for _ in range(count)]
        for port in ports:
            self.connect(protocol, port).received(requests)
        return ports


class Output:
    """A connection with a large output, as its line knows it."""

    output_bytes = SIZE
    is_written = False

    def write(self) -> None:
        self.is_written = True


class StepPort(Port):
    """A port that knows in which step of the loop it was written."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self.scene = scene
        self.writes: list[tuple[int, int]] = []

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.writes.append((self.scene.steps, len(data)))
        super().write(data)


def most_in_a_step(ports: list[StepPort]) -> int:
    steps: dict[int, int] = {}
    for port in ports:
        for step, size in port.writes:
            steps[step] = steps.get(step, 0) + size
    return max(steps.values())


@pytest.mark.parametrize("peek", [b"peek 1\r\n", b"peek-ready\r\n"])
def test_one_body_for_many_clients_is_written_in_steps(peek: bytes) -> None:
    scene = Scene()
    ports = scene.ports(MANY, peek)
    scene.commit_own()
    assert all(port.output == FOUND for port in ports)
    assert most_in_a_step(ports) <= WRITTEN_MAX


def test_short_replies_pass_large_ones() -> None:
    scene = Scene()
    large = scene.ports(MANY, b"peek 1\r\n")
    short = scene.ports(1, b"stats-job 1\r\n")
    scene.commit_own()
    [(step, _)] = short[0].writes
    assert step == min(port.writes[0][0] for port in large)


def test_one_result_for_many_clients_is_written_in_steps() -> None:
    scene = Scene()
    asked = b"add %b q 1000 60000 1\r\nx\r\n" % JOB
    scene.connect("workq").received(asked)
    scene.commit_own()
    ports = scene.ports(MANY, b"result %b 60000\r\n" % JOB, "workq")
    scene.commit_own()
    scene.connect("workq").received(b"complete %b %d\r\n%b\r\n" % (JOB, SIZE, BODY))
    scene.commit_own()
    assert {port.output for port in ports} == {b"+OK 1\r\n%b 1 %d\r\n%b\r\n" % (JOB, SIZE, BODY)}
    assert most_in_a_step(ports) <= WRITTEN_MAX


def test_outputs_in_the_line_have_one_body() -> None:
    scene = Scene()
    clients = scene.node.clients
    scene.halt_line()
    ports = scene.ports(MANY, b"peek 1\r\n")
    scene.commit_own()
    waiting = [item for item in clients.connections if clients.large.has(item)]
    assert len(waiting) > MANY // 2
    for item in waiting:
        assert isinstance(item, RequestConnection)
        assert item.output_bytes > SIZE and item._replies.own_bytes < 100
    clients.unread.bytes = 0
    clients.run_periodic()
    scene.commit_own()
    assert all(port.output == FOUND for port in ports)


def test_nothing_is_written_while_clients_are_closed_for_what_they_do_not_read() -> None:
    scene = Scene()
    clients = scene.node.clients
    ports = scene.ports(MANY, b"peek 1\r\n")
    scene.halt_line()
    scene.commit_own()
    assert sum(len(port.output) for port in ports) <= WRITTEN_MAX, "of the first step"
    clients.unread.bytes = 0
    clients.run_periodic()
    clients.run_periodic()
    scene.run()
    assert all(port.output == FOUND for port in ports)
    assert most_in_a_step(ports) <= WRITTEN_MAX, "of one line, however often it is looked at"


def test_a_client_that_quits_is_sent_what_waits_and_counts_until_then() -> None:
    scene = Scene()
    clients = scene.node.clients
    ports = scene.ports(MANY, b"peek 1\r\nquit\r\n")
    scene.halt_line()
    scene.commit_own()
    open_ports = [port for port in ports if not port.closed]
    assert len(open_ports) == clients.large.ending > MANY // 2
    assert not any(port.reading for port in open_ports)
    clients.connections_max = len(clients.connections) + len(open_ports) - REFUSED_MAX
    assert clients.is_crowded("beanstalk", b"10.0.0.2"), "each has a file descriptor"
    scene.let_line_go_on()
    assert all(port.closed and port.output == FOUND for port in ports)
    assert most_in_a_step(ports) <= WRITTEN_MAX
    assert clients.large.ending == 0 and not clients.is_crowded("beanstalk", b"10.0.0.2")


def test_a_client_that_has_gone_leaves_the_line() -> None:
    scene = Scene()
    clients = scene.node.clients
    ports = scene.ports(MANY, b"peek 1\r\n")
    scene.halt_line()
    scene.commit_own()
    for item in list(clients.connections):
        item.lost()
    scene.let_line_go_on()
    assert sum(len(port.output) for port in ports) <= WRITTEN_MAX
    assert not clients.large._line and clients.large._own_bytes == 0


def test_a_node_that_stops_writes_at_once() -> None:
    scene = Scene()
    clients = scene.node.clients
    clients.leaving = True
    ports = scene.ports(MANY, b"peek 1\r\nquit\r\n")
    scene.halt_line()
    scene.commit_own()
    assert all(port.closed and port.output == FOUND for port in ports)


def test_a_client_in_the_line_gets_no_more_than_its_limit() -> None:
    """It is not told that its client does not read."""
    limit = 200_000
    scene = Scene(limit)
    clients = scene.node.clients
    scene.halt_line()
    scene.end_step()
    port = Port()
    connection = scene.connect(port=port)
    connection._replies.push(bytes(limit))
    scene.run()
    assert clients.large.has(connection)
    connection.received(b"list-tube-used\r\n")
    assert connection.output_bytes == limit and not port.reading
    scene.let_line_go_on()
    assert port.output == bytes(limit) + b"USING default\r\n" and port.reading


def test_messages_that_come_faster_than_they_are_written_end_a_client() -> None:
    limit = 200_000
    scene = Scene(limit)
    clients = scene.node.clients
    [listener] = scene.ports(1, request(p.SUBMIT_JOB, b"f", b"", b"x"), "gearman")
    scene.commit_own()
    worker = scene.connect("gearman")
    worker.received(request(p.CAN_DO, b"f") + request(p.GRAB_JOB))
    scene.commit_own()
    handle = listener.take().partition(b"H:")[2]
    scene.halt_line()
    scene.end_step()
    data = request(p.WORK_DATA, b"H:" + handle, BODY)
    for count in range(1, 20):
        worker.received(data)
        scene.commit_own()
        assert listener.closed == (count * len(data) >= LINE_OUTPUTS_MAX * limit)
        if listener.closed:
            break
    assert listener.closed and clients.slow_total == {"gearman": 1}


@pytest.mark.constants
def test_what_is_in_memory_for_one_client_alone_has_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(large_output, "OWN_BYTES_MAX", 10 * SIZE)
    scene = Scene()
    scene.halt_line()
    scene.end_step()
    ports = [Port() for _ in range(30)]
    for port in ports:
        scene.connect(port=port)._replies.push(bytes(SIZE))
    scene.run()
    assert [len(port.output) for port in ports] == [0] * 10 + [SIZE] * 20, "at once"
    scene.let_line_go_on()
    assert all(port.output == bytes(SIZE) for port in ports)


@pytest.mark.constants
def test_the_line_moves_on_while_others_pass_as_much_as_a_step_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(large_output, "OWN_BYTES_MAX", 2 * SIZE)
    monkeypatch.setattr(large_output, "STEP_BYTES", SIZE)
    scene = Scene()
    large = scene.node.clients.large
    scene.end_step()
    waiting = [Output(), Output()]
    assert not any(large.may_write(output, SIZE) for output in waiting)  # type: ignore[arg-type]
    for output in waiting:
        large._passed = SIZE  # of clients with own bytes for which the line has no room
        large._step()
        assert output.is_written


@pytest.mark.constants
def test_clients_in_the_line_have_no_more_requests_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their echoes would take more than the limit, each without a look at it."""
    monkeypatch.setattr(large_output, "OWN_BYTES_MAX", 10 * SIZE)
    scene = Scene()
    scene.halt_line()
    scene.end_step()
    echo = request(p.ECHO_REQ, BODY)
    ports = [Port() for _ in range(9)]
    connections = [scene.connect("gearman", port) for port in ports]
    for _ in range(5):
        for connection in connections:
            connection.received(2 * echo)
        scene.run()
    assert sum(item.output_bytes for item in connections) <= 10 * SIZE
    assert not any(port.reading for port in ports)
    scene.let_line_go_on()
    reply = replies.reply(p.ECHO_RES, BODY)
    assert all(port.output == 10 * reply and port.reading for port in ports)


FUNCTIONS = [b"%03d%b" % (number, bytes(b"n" * 500)) for number in range(200)]


def listing_scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Return a node whose list of functions has large pieces, and whose line writes nothing."""
    monkeypatch.setattr(listings, "PIECE_ROWS", 80)
    monkeypatch.setattr(listings, "WRITE_BYTES", 1)
    scene = Scene()
    worker = scene.connect("gearman")
    worker.received(b"".join(request(p.CAN_DO, name) for name in FUNCTIONS))
    scene.commit_own()
    scene.halt_line()
    scene.end_step()
    return scene


@pytest.mark.constants
def test_a_list_in_the_line_holds_up_no_other_list_and_costs_no_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = listing_scene(monkeypatch)
    before = scene.steps
    large = scene.ports(2, b"status\nversion\n", "gearman")
    [short] = scene.ports(1, b"show jobs\n", "gearman")
    scene.commit_own()
    assert short.output == b".\n"
    assert scene.steps - before < 20
    assert not any(port.output for port in large)
    scene.let_line_go_on()
    rows = b"".join(b"%b\t0\t0\t1\n" % name for name in FUNCTIONS)
    assert [port.output for port in large] == [rows + b".\nOK 1.1.20\n"] * 2


class Deaf(Port):
    """A port whose client does not read."""

    connection: RequestConnection

    def write(self, data: bytes) -> None:
        super().write(data)
        self.connection.stall()


@pytest.mark.constants
def test_few_lists_that_have_been_in_the_line_wait_for_clients_that_do_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = listing_scene(monkeypatch)
    monkeypatch.setattr(list_line, "UNREAD_MAX", 2)
    ports = [Deaf() for _ in range(10)]
    for port in ports:
        port.connection = scene.connect("gearman", port)
        port.connection.received(b"status\n")
    scene.commit_own()
    scene.let_line_go_on()
    assert [port.closed for port in ports] == [True] * 8 + [False] * 2
