"""`beanpole doctor`: members that do not answer, and why, and those whose clocks differ."""

import pytest

from beanpole.pb import admin_pb2, node_pb2
from beanpoled.cli.doctor import _line, _together
from beanpoled.cli.status import away_words
from beanpoled.examining import ERROR, WARNING
from beanpoled.node_view import LocalNodeView
from beanpoled.rpc.peer import PeerClient
from tests.unit.beanpoled.fakes import FakeView, trust_of
from tests.unit.beanpoled.test_admin import SECRET, Cluster, run
from tests.unit.beanpoled.test_doctor import cluster, found, well
from tests.unit.node.stage import SECOND, Stage
from tests.unit.node.test_peers import heartbeat


def test_the_reason_why_there_is_no_link_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    def change(views: list[FakeView]) -> None:
        views[0].reasons = {"n2": "its certificate is not yet valid"}

    assert cluster(change, away=True) == 1
    words = "n2 of 3 cannot be reached (n2: its certificate is not yet valid)"
    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith(f"error members: {words}; start them")


def test_a_member_that_refuses_calls_is_not_blamed_on_the_network() -> None:
    """Its link is older than its new secret."""
    refusal = "n1 has another peer_secret, or another node answers there"
    nodes = [
        node_pb2.Node(id="n0", reachable=True, links=["n1"]),
        node_pb2.Node(id="n1", refusal=refusal),
    ]
    reply = admin_pb2.StatusReply(cluster="c", leader="n1", term=3, nodes=nodes)
    by_name = {one.name: one for one in _together(reply)}
    assert by_name["members"].words == f"n1 of 2 cannot be reached (n1: {refusal})"
    for name in ("members", "leader"):
        assert by_name[name].level == ERROR
        assert by_name[name].remedy.startswith("give all nodes the same members, peer_secret")


def test_a_path_that_is_cut_is_no_matter_of_secrets() -> None:
    """Another node still has a link to the member."""
    nodes = [
        node_pb2.Node(id="n0", reachable=True, links=["n1"]),
        node_pb2.Node(id="n1", reachable=True, links=["n0", "n2"]),
        node_pb2.Node(id="n2", no_link="10.0.0.3:7000 No route to host\x1b[2J"),
    ]
    reply = admin_pb2.StatusReply(cluster="c", leader="n2", term=3, nodes=nodes)
    by_name = {one.name: one for one in _together(reply)}
    assert by_name["members"].remedy.startswith("start them, or look at the network")
    assert by_name["leader"].remedy.startswith("look at its grpc_listen, and at firewalls")
    assert "No route to host\\x1b[2J" in _line(by_name["members"])
    assert away_words(nodes[2]) == "not reachable: 10.0.0.3:7000 No route to host\\x1b[2J"


def test_a_refusal_is_told_with_the_state_of_the_cluster() -> None:
    async def test() -> None:
        n0 = Cluster([FakeView()], SECRET)
        async with n0.running():
            for secret, refusal in (
                ("another secret of 16", "n0 has another peer_secret, or another node answers"),
                ("", "this cluster has a peer_secret, and the call does not prove"),
            ):
                stranger = PeerClient(n0.addresses, trust_of("n1", secret))
                answer, words = await stranger.node_info("n0", 60)
                assert answer is None
                assert words.startswith(refusal)
                await stranger.close()
        gone = PeerClient(n0.addresses, trust_of("n1", SECRET))
        assert await gone.node_info("n0", 60) == (None, "")
        await gone.close()

    run(test)


@pytest.mark.parametrize(
    ("skew_s", "words"), [(-86_400.0, "86400.0 s behind it"), (6.0, "6.0 s ahead of it")]
)
def test_a_member_whose_clock_differs_is_named_by_the_others(skew_s: float, words: str) -> None:
    """It may not be asked itself: the certificates of others are not valid by its clock."""
    view = well()
    view.skews = {"n1": 0.5, "n2": skew_s}
    clocks = found(view)["clocks"]
    assert (clocks.level, clocks.words) == (
        WARNING,
        f"compared with that of n0, that of n2 is {words}",
    )
    view.skews = {"n1": 4.0, "n2": -4.0}
    assert "clocks" not in found(view)


def test_a_node_tells_the_clocks_of_linked_members_and_why_others_have_no_link() -> None:
    stage = Stage()
    view = LocalNodeView(stage.node, trust_of())
    stage.node.peers.up("n2")
    heartbeat(stage, "n2", wall_us=stage.host.walls_us + 6 * SECOND)
    stage.host.reasons = {"n1": "has made no link to this node", "n2": "is connected"}
    assert view.skews_s() == {"n2": 6.0}
    assert view.no_link_words("n1") == "has made no link to n0"
    assert view.no_link_words("n2") == ""
