"""Several protocols at one node: which ports open when, and the counters of each."""

from beanpole import commands as c
from beanpoled.frontends.beanstalk.frontend import BeanstalkFrontend
from beanpoled.frontends.clients import REFUSED_MAX, Clients
from beanpoled.frontends.frontend import Frontend
from beanpoled.frontends.table import FRONTENDS
from tests.unit.node.stage import Port, Stage
from tests.unit.node.test_peers import heartbeat

NEW = c.BASE_VERSION + 1


def late(clients: Clients, name: str) -> Frontend:
    """A protocol that the next machine version introduces."""
    made = BeanstalkFrontend(clients, name)
    made.since = NEW
    return made


def stage_of_two(connections_max: int = 100) -> Stage:
    table = {**FRONTENDS, "late": late}
    stage = Stage(NEW, frontends=table, connections_max=connections_max)
    stage.lead()
    for peer in ("n1", "n2"):
        heartbeat(stage, peer, machine_version=c.BASE_VERSION)
    stage.come_up()
    return stage


def test_a_port_opens_at_the_version_of_its_protocol() -> None:
    stage = stage_of_two()
    assert stage.host.opened == ["beanstalk"]
    for peer in ("n1", "n2"):
        heartbeat(stage, peer, machine_version=NEW)
    stage.pass_us(1_000_000)
    stage.commit()
    assert stage.node.context.machine.version == NEW
    assert stage.host.opened == ["beanstalk"]
    stage.pass_us(200_000)
    assert stage.host.opened == ["beanstalk", "beanstalk", "late"]


def test_a_node_that_accepts_no_clients_opens_nothing_for_a_version() -> None:
    stage = stage_of_two()
    stage.node.frontends.close()
    assert not stage.host.clients_open
    for peer in ("n1", "n2"):
        heartbeat(stage, peer, machine_version=NEW)
    stage.pass_us(1_000_000)
    stage.commit()
    stage.pass_us(200_000)
    assert stage.node.context.machine.version == NEW
    assert stage.host.opened == ["beanstalk"]


def test_a_node_between_two_incarnations_opens_nothing_for_a_version() -> None:
    """The node waits for its disk, and a client would belong to no incarnation."""
    stage = stage_of_two()
    stage.node.disk_health.writes_hang = True
    stage.node.lifecycle.went_down(1)
    assert not stage.host.clients_open
    stage.node.context.machine.version = NEW
    stage.node.frontends.run_periodic()
    assert stage.host.opened == ["beanstalk"]
    assert not stage.host.clients_open


def test_each_protocol_is_counted_by_itself() -> None:
    stage = stage_of_two()
    first, _ = stage.client(b"put 0 0 60 1\r\na\r\n")
    stage.commit()
    port = Port()
    second = stage.node.frontends["late"].connected(port)
    assert second is not None
    second.received(b"watch other\r\nreserve-job 7\r\nreserve\r\nstats\r\n")
    stage.run()
    stage.commit()
    figures = stage.node.frontends.figures()
    assert (figures["beanstalk"].connections, figures["late"].connections) == (1, 1)
    assert (figures["beanstalk"].waiting, figures["late"].waiting) == (0, 0)
    assert figures["beanstalk"].commands_total["put"] == 1
    assert figures["late"].commands_total["put"] == 0
    assert figures["late"].commands_total["watch"] == 1
    first.lost()
    figures = stage.node.frontends.figures()
    assert figures["beanstalk"].connections == 0
    assert (figures["beanstalk"].connections_total, figures["late"].connections_total) == (1, 1)


def test_the_limit_of_connections_is_of_all_protocols() -> None:
    stage = stage_of_two(connections_max=1)
    stage.client()
    late_ones = stage.node.frontends["late"]
    port = Port()
    refused = late_ones.connected(port)
    assert refused is not None and refused.refused
    refused.received(b"list-tube-used\r\n")
    stage.run()
    assert port.take() == b"OUT_OF_MEMORY\r\n" and port.closed
    taken = [late_ones.connected(Port()) for _ in range(REFUSED_MAX + 1)]
    assert taken[-1] is None and None not in taken[:-1]
    assert late_ones.figures().refused_total == REFUSED_MAX + 1


def test_errors_are_counted_by_their_words() -> None:
    stage = stage_of_two()
    frontend = stage.node.frontends["beanstalk"]
    assert set(frontend.errors().values()) == {0}
    _, port = stage.client(b"nonsense\r\ndelete 9\r\nnonsense\r\n")
    stage.commit()
    assert port.take() == b"UNKNOWN_COMMAND\r\nNOT_FOUND\r\nUNKNOWN_COMMAND\r\n"
    found = {word: count for word, count in frontend.errors().items() if count}
    assert found == {"UNKNOWN_COMMAND": 2, "NOT_FOUND": 1}
    assert set(stage.node.frontends["late"].errors().values()) == {0}
