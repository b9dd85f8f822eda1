"""Draw the board for docs/ from a live cluster: `python -m tests.observe.picture FILE.png`.

Grafana is not in the package registries of this project, so this is no screenshot of Grafana: the
program sends the board's queries to a real Prometheus and draws each panel where Grafana would
place it, in headless Chromium. It only supports the board's types of panels.
"""

import html
import json
import subprocess
import sys
import tempfile
import time
import urllib.parse
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

from tests.integration.support.load import Load
from tests.integration.support.nodes import Cluster
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_for_time
from tests.observe.test_board import BOARD, JOB, Prometheus

SECONDS: Final = 60
WIDTH: Final = 1600
UNIT_PX: Final = (WIDTH // 24, 22)
COLOURS: Final = ("#7eb26d", "#eab839", "#6ed0e0", "#ef843c", "#e24d42", "#1f78c1", "#ba43a9")
LEGENDS_MAX: Final = 4
STYLE: Final = (
    "body{margin:0;background:#111217;color:#ccccdc;font:12px sans-serif}"
    ".p{position:absolute;background:#181b1f;border:1px solid #2c3235;overflow:hidden}"
    ".p b,h3{font-weight:500;margin:4px 8px;display:block}.s{font-size:22px;margin:16px 8px}"
    ".l{margin:0 8px;white-space:nowrap}h3{position:absolute}"
)
SCALES: Final = (("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0), ("m", 1e-3), ("u", 1e-6))

Series = tuple[str, list[tuple[float, float]]]


def series(prometheus: Prometheus, panel: dict[str, Any]) -> list[Series]:
    """Return the legend and the points of each line of a panel."""
    found: list[Series] = []
    now = time.time()
    for target in panel["targets"]:
        words = {
            "query": target["expr"].replace("$job", JOB),
            "start": now - SECONDS,
            "end": now,
            "step": 1,
        }
        url = f"http://{prometheus.address}/api/v1/query_range?{urllib.parse.urlencode(words)}"
        for one in json.loads(urlopen(url, timeout=10).read())["data"]["result"]:
            legend = target["legendFormat"]
            for name, value in one["metric"].items():
                legend = legend.replace("{{" + name + "}}", value)
            points = [(at, float(value)) for at, value in one["values"]]
            found.append((legend, [point for point in points if point[1] == point[1]]))
    # The legend shows the colours of the largest.
    return sorted(found, key=lambda line: -line[1][-1][1] if line[1] else 0.0)


def number(value: float) -> str:
    for suffix, scale in SCALES:
        if abs(value) >= scale:
            return f"{value / scale:.3g}{suffix}"
    return f"{value:.3g}"


def drawn(panel: dict[str, Any], lines: list[Series], width: int, height: int) -> str:
    """Return the contents of a panel."""
    if panel["type"] == "stat":
        now = max((points[-1][0] for _, points in lines if points), default=0)
        last = [(name, points[-1]) for name, points in lines if points]
        words = [f"{name}: {number(value)}" for name, (at, value) in last if at == now]
        return f'<div class="s">{html.escape(", ".join(words))}</div>'
    top = max((value for _, points in lines for _, value in points), default=0) or 1
    begin = min((points[0][0] for _, points in lines if points), default=0)
    across, up = (width - 50) / SECONDS, (height - 10) / top
    parts = [f'<text x="8" y="10" fill="#888">{number(top)}</text>']
    for place, (_, points) in enumerate(lines):
        marks = " ".join(
            f"{40 + (at - begin) * across:.1f},{height - 4 - value * up:.1f}"
            for at, value in points
        )
        colour = COLOURS[place % len(COLOURS)]
        parts.append(f'<polyline points="{marks}" fill="none" stroke="{colour}"/>')
    legends = [
        f'<span style="color:{COLOURS[place % len(COLOURS)]}">{html.escape(name)}</span>'
        for place, (name, _) in enumerate(lines[:LEGENDS_MAX])
    ]
    chart = f'<svg width="{width}" height="{height}" font-size="10">{"".join(parts)}</svg>'
    return f'{chart}<div class="l">{" &nbsp; ".join(legends)}</div>'


def page(prometheus: Prometheus) -> tuple[str, int]:
    """Return the board as HTML, and its height in pixels."""
    parts, bottom = [f"<style>{STYLE}</style>"], 0
    for panel in json.loads(BOARD.read_text())["panels"]:
        place = panel["gridPos"]
        x, y = place["x"] * UNIT_PX[0], place["y"] * UNIT_PX[1]
        width, height = place["w"] * UNIT_PX[0] - 6, place["h"] * UNIT_PX[1] - 6
        bottom = max(bottom, y + height + 6)
        title = html.escape(panel["title"])
        if panel["type"] == "row":
            parts.append(f'<h3 style="left:{x}px;top:{y}px">{title}</h3>')
            continue
        lines = series(prometheus, panel)
        # Nodes of another tree without the metric would leave the panel empty.
        assert any(points for _, points in lines), f"{panel['title']} shows nothing"
        inside = drawn(panel, lines, width, height - 46)
        box = f"left:{x}px;top:{y}px;width:{width}px;height:{height}px"
        parts.append(f'<div class="p" style="{box}"><b>{title}</b>{inside}</div>')
    return "".join(parts), bottom


def with_errors(cluster: Cluster, seconds: int) -> None:
    """Let time pass while a client gets an error each second, for an unknown job."""
    with Raw(cluster.nodes[0].beanstalk) as client:
        for _ in range(seconds):
            client.ask(b"delete 4294967295", b"NOT_FOUND")
            wait_for_time(1)


def main() -> None:
    """Run a cluster under load for a minute, kill its leader, and draw the board."""
    target = Path(sys.argv[1]).resolve()
    directory = Path(tempfile.mkdtemp(prefix="beanpole-board-"))
    with Cluster(directory / "cluster").running() as cluster:
        prometheus = Prometheus(cluster, directory)
        load = Load([node.beanstalk for node in cluster.nodes], 6, pause_s=0.005)
        with Raw(cluster.nodes[0].beanstalk) as client:
            for tube in (b"mail", b"images", b"reports"):
                client.command(b"use " + tube)
                for _ in range(60):
                    client.put(b"x" * 100)
        load.start()
        with_errors(cluster, SECONDS // 2)
        leader = cluster.leader()
        cluster.kill(leader)
        wait_for_time(5)
        cluster.start(leader)
        cluster.wait_until_serving(leader)
        with_errors(cluster, SECONDS // 2 - 5)
        text, height = page(prometheus)
        load.stop()
        prometheus.process.kill()
    (directory / "board.html").write_text(text)
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={WIDTH},{height}"]
    line = ["chromium", *options, f"--screenshot={target}", f"file://{directory / 'board.html'}"]
    subprocess.run(line, check=True, capture_output=True)


if __name__ == "__main__":
    main()
