"""Results as files, ratios, tables and charts; and rejected command lines."""

import xml.etree.ElementTree
from pathlib import Path

import pytest

from bench import chart, report, results
from bench.processes import BenchError
from bench.results import BASELINE, Spread
from bench.run import main
from bench.workloads import SETS, SYSTEMS, workload
from tests.unit.bench.figures import LATENCY, figure, run

RUN = run(("beanpole, 3 nodes", 300), (BASELINE, 100), ("beanpole, 3 nodes", 300), (BASELINE, 50))


def test_ratios_are_taken_within_a_round() -> None:
    assert results.ratios(RUN.figures, "beanpole, 3 nodes", BASELINE, "full", 64) == [3.0, 6.0]


def test_spread() -> None:
    assert results.spread([5.0]) == Spread(5.0, 5.0, 5.0)
    assert results.spread([5.0, 1.0, 3.0, 2.0, 4.0]) == Spread(3.0, 2.0, 4.0)


def test_results_survive_their_file(tmp_path: Path) -> None:
    path = tmp_path / "deeper" / "quick.json"
    results.save(RUN, path)
    assert results.load(path) == RUN


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"a": 1}')
    with pytest.raises(BenchError, match="not a file of results"):
        results.load(tmp_path / "other.json")


def test_only_the_marked_part_of_the_page_changes(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    begun = f"before\n{report.BEGIN}\nold\n### Another set\n\nkept\n"
    page.write_text(f"{begun}\n### Full cycles beside beanstalkd\nold\n{report.END}\nafter\n")
    two = RUN._replace(figures=[*RUN.figures, figure(1, "beanpole, 3 nodes", 900.0, 256)])
    written = report.write([two], page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert text.index("### Another set\n\nkept\n\n### Full cycles") > 0
    assert "4.50 (3.75 to 5.25)" in text
    assert "2 x fast" in text
    assert f"-m bench quick --rounds {two.rounds} --seconds {two.seconds:g}`." in text
    assert report.write([two], page) == written
    assert page.read_text() == text, "the same results give the same page"
    assert written == [page, tmp_path / "performance" / "quick.svg"]


def test_a_run_of_ones_own_choice_has_a_section_and_a_chart(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"{report.BEGIN}\n{report.END}\n")
    several = [*RUN.figures, figure(1, "beanpole, 3 nodes", 900.0, 256)]
    report.write([RUN._replace(set="installed", figures=several)], page)
    assert "### installed\n" in page.read_text()
    assert (tmp_path / "performance" / "installed.svg").exists()


def test_a_page_without_marks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("nothing")
    with pytest.raises(BenchError, match="has no lines"):
        report.write([RUN], tmp_path / "page.md")


def test_a_chart_is_xml_with_a_point_for_each_figure() -> None:
    drawn = chart.draw("a < b", "jobs", "op/s", {"x & y": [(0, 10), (1000, 20)], "z": [(1, 15)]})
    tree = xml.etree.ElementTree.fromstring(drawn)
    assert len([item for item in tree.iter() if item.tag.endswith("circle")]) == 3


def test_many_lines_can_be_told_apart() -> None:
    lines = {f"line {number}": [(1, 1.0), (1024, 2.0)] for number in range(len(chart.COLOURS) + 1)}
    tree = xml.etree.ElementTree.fromstring(chart.draw("many", "jobs", "op/s", lines))
    drawn = [item for item in tree.iter() if item.get("points") and item.get("stroke") != "#ddd"]
    looks = {(item.get("stroke"), item.get("stroke-dasharray")) for item in drawn}
    assert len(looks) == len(lines)
    heights = {item.text: float(item.get("y", "nan")) for item in tree.iter() if item.text}
    names = [y for text, y in heights.items() if "line" in text]
    assert max(names) < heights["op/s"] < min(float(item.get("cy", "inf")) for item in tree.iter())
    assert "1,024" in heights


@pytest.mark.parametrize(("value", "top"), [(1, 1), (1.1, 1.5), (4900, 5000), (50_001, 60_000)])
def test_the_end_of_an_axis(value: float, top: float) -> None:
    assert chart.top_of(value) == top


def test_names_are_unique() -> None:
    assert len({system.name for system in SYSTEMS}) == len(SYSTEMS)
    assert len({one.name for one in SETS}) == len(SETS)
    for one in SETS:
        assert len({load.name for load in one.workloads}) == len(one.workloads)


def test_an_unknown_workload_is_told_what_is_known() -> None:
    with pytest.raises(BenchError, match=r"'nix'; these are known: full, put, take"):
        workload("nix")


def test_an_unknown_system_is_told_what_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["quick", "--only", "nix", "--dir", str(tmp_path)]) == 1
    assert "beanpole, 3 nodes; " in capsys.readouterr().err


def test_numbers_out_of_range_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--seconds", "0"], ["--rounds", "0"], ["--connections", "1,0"]):
        with pytest.raises(SystemExit):
            main(words)
        assert "must be" in capsys.readouterr().err


def test_results_that_clients_waited_for_have_a_table() -> None:
    """Of 10 operations in a second, 4 were results; half of the connections waited for them."""
    latency = {"all": LATENCY, "run": LATENCY, "handoff": LATENCY}
    one = figure(1, "beanpole gearman, 3 nodes", 10.0)
    one = one._replace(latency_us=latency, done_per_s={"run": 4.0, "reserve": 6.0})
    found = RUN._replace(figures=[one._replace(workload="foreground")])
    table, waited = report.tables(found)
    assert "-" in table[1], "nothing was put"
    assert waited[1] == [one.system, one.promise, "32", "4", "1.00", "2.00", "1.00"]


def test_qless_is_compared_with_its_script_on_redis() -> None:
    mine, theirs = "beanpole qless, 3 nodes", "qless on Redis appendfsync always"
    found = run((mine, 300), (theirs, 200), (mine, 300), (theirs, 100))._replace(set="qless")
    _, compared = report.tables(found)
    assert compared[1][0] == theirs
    assert compared[1][2] == "2.25 (1.88 to 2.62)"


def test_only_some_protocols_have_results() -> None:
    fitting = {system.protocol for system in SYSTEMS if workload("foreground").fits(system)}
    assert fitting == {"gearman", "workq"}
