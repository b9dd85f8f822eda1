"""`beanpole doctor`: members that do not answer, and why, and those whose clocks differ."""

import pytest

from beanpole.pb import admin_pb2, node_pb2
from beanpoled.cli.doctor import _together
from beanpoled.examining import ERROR, WARNING
from beanpoled.rpc.peer import PeerClient
from tests.unit.beanpoled.fakes import FakeView, trust_of
from tests.unit.beanpoled.test_admin import SECRET, Cluster, run
from tests.unit.beanpoled.test_doctor import cluster, found, well


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
        node_pb2.Node(id="n1", error=refusal),
    ]
    reply = admin_pb2.StatusReply(cluster="c", leader="n1", term=3, nodes=nodes)
    by_name = {one.name: one for one in _together(reply)}
    assert by_name["members"].words == f"n1 of 2 cannot be reached (n1: {refusal})"
    for name in ("members", "leader"):
        assert by_name[name].level == ERROR
        assert by_name[name].remedy.startswith("give all nodes the same peer_secret, ")


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
