"""The page of a run contains faults, rates, latencies, leaders and findings, and no more."""

from pathlib import Path

from chaos import record, report
from chaos.checks import Window
from chaos.nemesis import AWAY, FOLLOWER, LEADER
from chaos.record import Op
from chaos.report import Role


def put(client: int, node: int, at_s: float, took_s: float) -> Op:
    head = record.make_head(client, int(at_s * 1000), 5, 60)
    return Op(client, node, record.PUT, at_s - took_s, at_s, 1, "INSERTED", head)


def test_rates_and_latencies_are_by_node_and_second() -> None:
    axis = report.Axis(100.0, 110.0)
    ops = [put(0, 0, 100.5, 0.01), put(0, 0, 100.6, 0.03), put(0, 1, 103.5, 0.5)]
    rates, late = report.seconds(ops, axis)
    assert rates[0] == [(100.0, 2.0), (101.0, 0.0), (102.0, 0.0)]
    assert [round(ms) for _, ms in late[0]] == [30] and [round(ms) for _, ms in late[1]] == [500]


def test_a_page_has_everything_of_its_run(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    clients = [[put(0, 0, 101.0, 0.01), put(0, 1, 109.0, 0.01)]]
    windows = {"deaf & mute": [Window(102.0, 104.0)], "slow": [Window(105.0, 106.0)]}
    roles = [Role(101.0, 0, LEADER), Role(101.0, 1, FOLLOWER), Role(107.0, 0, AWAY)]
    words = (["lost 1"], ["job 7 was acknowledged and is <lost>"])
    report.write(path, "a run", windows, clients, roles, words)
    page = path.read_text()
    assert "a run: 1 findings" in page and "deaf &amp; mute" in page and "&lt;lost&gt;" in page
    assert page.count('class="f"') == 2 and page.count("<polyline") == 4
    assert page.count(f"<title>{LEADER}</title>") == 1 and page.count(f"<title>{AWAY}</title>") == 1
    assert "http" not in page and "<script" not in page


def test_a_run_without_a_command_has_a_page(tmp_path: Path) -> None:
    report.write(tmp_path / "report.html", "nothing", {}, [], [], ([], []))
    assert "nothing: good" in (tmp_path / "report.html").read_text()
