"""Format results: tables for a terminal and for docs/performance.md, and charts beside them."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench import chart
from bench.generator import Figure
from bench.processes import BenchError
from bench.results import BASELINE, Results, groups, middle, ratios, spread
from bench.servers import BEANPOLE_3, BEANPOLE_QLESS
from bench.workloads import SERIES, SETS

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
BEGIN: Final = "<!-- results: written by `python -m bench report` -->"
END: Final = "<!-- end of the results -->"
# One section of the results, from its heading to the next.
_SECTIONS: Final = re.compile(r"^### .*?(?=^### |\Z)", re.DOTALL | re.MULTILINE)

# For some sets, the system that all others are compared with.
COMPARED: Final = {
    "peers": BEANPOLE_3.name,
    "events": BEANPOLE_3.name,
    "qless": BEANPOLE_QLESS[0].name,
}
COLUMNS: Final[tuple[tuple[str, Callable[[Sequence[Figure]], str]], ...]] = (
    ("op/s", lambda group: f"{middle(group, 'op_s'):,.0f}"),
    ("put p50 ms", lambda group: _ms(group, "p50", "put")),
    ("p50 ms", lambda group: _ms(group, "p50")),
    ("p99 ms", lambda group: _ms(group, "p99")),
    ("p99.9 ms", lambda group: _ms(group, "p99_9")),
    ("max ms", lambda group: _ms(group, "max")),
    ("server us/op", lambda group: f"{middle(group, 'server_us_per_op'):.1f}"),
    ("CPU s/1,000 jobs", lambda group: f"{middle(group, 'cpu_s_per_1000_jobs'):.3f}"),
    ("written B/job", lambda group: f"{middle(group, 'written_bytes_per_job'):,.0f}"),
    ("generator", lambda group: f"{middle(group, 'client_cpu_share'):.0%}"),
)


def _ms(group: Sequence[Figure], name: str, operation: str = "all") -> str:
    if any(operation not in one.latency_us for one in group):
        return "-"
    return f"{middle(group, 'latency_us', operation, name) / 1e3:.2f}"


def table(results: Results) -> list[list[str]]:
    """Return the rows of the main table, its head first."""
    found = groups(results.figures)
    resident = any(middle(group, "resident_bytes_per_job") for group in found.values())
    several = len({load for load, _, _ in found}) > 1
    names = ["workload"] if several else []
    names += ["system", "promise", "conns", *(name for name, _ in COLUMNS)]
    names.insert(names.index("op/s") + 1, f"x {BASELINE.removeprefix('beanstalkd ')}")
    rows = [[*names, "RSS B/job"] if resident else names]
    for (load, system, connections), group in found.items():
        cells = [column(group) for _, column in COLUMNS]
        cells.insert(1, _ratio(results, system, BASELINE, load, connections))
        row = [load] if several else []
        row += [system, group[0].promise, str(connections), *cells]
        if resident:
            row.append(f"{middle(group, 'resident_bytes_per_job'):,.0f}")
        rows.append(row)
    return rows


def _ratio(results: Results, one: str, other: str, load: str, connections: int) -> str:
    values = ratios(results.figures, one, other, load, connections)
    return str(spread(values)) if values else "-"


def against(results: Results, mine: str) -> list[list[str]]:
    """Return the ratio of this system's rate to that of each other system."""
    keys = groups(results.figures)
    counts = sorted({connections for _, _, connections in keys})
    names = list(dict.fromkeys(system for _, system, _ in keys if system != mine))
    load = next(iter(keys))[0]
    rows = [[f"{mine}, over", "promise", *(f"{count} connections" for count in counts)]]
    promises = {figure.system: figure.promise for figure in results.figures}
    for name in names:
        cells = [_ratio(results, mine, name, load, count) for count in counts]
        rows.append([name, promises[name], *cells])
    return rows


def handoffs(results: Results) -> list[list[str]]:
    """Return the time of a job's way to a blocked worker, beside the time of its put."""
    rows = [["system", "put p50 ms", "to the worker p50 ms", "ratio of the medians"]]
    for (_, system, _), group in groups(results.figures).items():
        if {"handoff", "put"} <= group[0].latency_us.keys():
            put = middle(group, "latency_us", "put", "p50")
            given = middle(group, "latency_us", "handoff", "p50")
            rows.append([system, f"{put / 1e3:.2f}", f"{given / 1e3:.2f}", f"{given / put:.2f}"])
    return rows


def foreground(results: Results) -> list[list[str]]:
    """Return the rate of results for waiting clients, and the clients' waits."""
    rows = [["system", "promise", "submitters", "results/s", "p50 ms", "p99 ms", "to a worker p50"]]
    for (_, system, connections), group in groups(results.figures).items():
        if "run" in group[0].latency_us:
            done = middle(group, "done_per_s", "run")
            times = [middle(group, "latency_us", "run", part) / 1e3 for part in ("p50", "p99")]
            given = middle(group, "latency_us", "handoff", "p50") / 1e3
            cells = [f"{time:.2f}" for time in (*times, given)]
            rows.append([system, group[0].promise, str(connections // 2), f"{done:,.0f}", *cells])
    return rows


def tables(results: Results) -> list[list[list[str]]]:
    """Return all tables of a set."""
    found = [table(results)]
    mine = COMPARED.get(results.set)
    if mine and any(one.system == mine for one in results.figures):
        found.append(against(results, mine))
    if any({"handoff", "put"} <= one.latency_us.keys() for one in results.figures):
        found.append(handoffs(results))
    if any("run" in one.latency_us for one in results.figures):
        found.append(foreground(results))
    return found


def head(results: Results) -> str:
    """Return a description of the measurement."""
    return (
        f"{results.at}; {results.rounds} rounds of {results.seconds:g} s for each line, bodies of "
        f"{results.body} bytes where the workload does not say otherwise. Medians of the rounds; "
        "ratios within each round, with their quartiles."
    )


def text(results: Results) -> str:
    """Return the tables for a terminal."""
    parts = [head(results)]
    for rows in tables(results):
        widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
        lines = [
            "  ".join(
                cell.rjust(width) if cell[:1].isdigit() else cell.ljust(width)
                for cell, width in zip(row, widths, strict=True)
            ).rstrip()
            for row in rows
        ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def markdown(rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def charts(results: Results) -> dict[str, str]:
    """Return the charts of a set, by file name."""
    if results.set == "charts":
        return {
            f"{series.name}.svg": drawn
            for series in SERIES
            if (drawn := _series(results, series.label, {w.name: x for x, w in series.points}))
        }
    lines: dict[str, list[tuple[float, float]]] = {}
    for (load, system, connections), group in groups(results.figures).items():
        if load == "full":
            lines.setdefault(system, []).append((connections, middle(group, "op_s")))
    if not any(len(line) > 1 for line in lines.values()):
        return {}
    return {f"{results.set}.svg": chart.draw(_title(results), "connections", "op/s", lines)}


def _title(results: Results) -> str:
    """Return the title of a set; its name for those of a run's own choice (`run`, `installed`)."""
    return next((one.title for one in SETS if one.name == results.set), results.set)


def _series(results: Results, label: str, points: dict[str, int]) -> str:
    lines: dict[str, list[tuple[float, float]]] = {}
    for (load, system, _), group in groups(results.figures).items():
        if load in points:
            lines.setdefault(system, []).append((points[load], middle(group, "op_s")))
    return chart.draw(f"Full cycles against {label}", label, "op/s", lines) if lines else ""


def section(results: Results, folder: str) -> str:
    """Return the section of the page about one set."""
    machine = "; ".join(f"{name}: {value}" for name, value in results.machine.items())
    parts = [f"### {_title(results)}", head(results), f"Machine: {machine}."]
    parts += [f"![{name}]({folder}/{name})" for name in charts(results)]
    parts += [markdown(rows) for rows in tables(results)]
    again = f"bench {results.set} --rounds {results.rounds} --seconds {results.seconds:g}"
    parts.append(f"Again: `make compiled && .venv/bin/python -m {again}`.")
    return "\n\n".join(parts)


def write(found: Sequence[Results], page: Path) -> list[Path]:
    """Rewrite the sections of these sets in the marked part of the page, and their charts.

    Sections of other sets stay as they are; new sections are appended.

    Returns:
        The written files.
    """
    written = page.read_text()
    before, begin, rest = written.partition(BEGIN)
    old, end, after = rest.partition(END)
    if not begin or not end:
        raise BenchError(f"{page} has no lines {BEGIN} and {END} to write between")
    folder = page.parent / page.stem
    files = [page]
    for results in found:
        for name, drawn in charts(results).items():
            folder.mkdir(exist_ok=True)
            (folder / name).write_text(drawn)
            files.append(folder / name)
    sections = {text.partition("\n")[0]: text for text in _SECTIONS.findall(old)}
    for one in found:
        text = section(one, page.stem)
        sections[text.partition("\n")[0]] = text
    joined = "\n\n".join(text.strip() for text in sections.values())
    page.write_text(f"{before}{BEGIN}\n\n{joined}\n\n{END}{after}")
    return files
