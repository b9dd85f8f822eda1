"""Render a run as one page of HTML: faults over time, with rate, latency and role of each node.

The page is self-contained. Its figures come from the judges; nothing is judged here.
"""

import html
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from chaos.checks import COMMITTED, Window, percentile
from chaos.nemesis import AWAY, FOLLOWER, LEADER, NOT_READY
from chaos.record import Op

WIDTH: Final = 1160
LEFT: Final = 130
LANE: Final = 16
CHART: Final = 120
COLOURS: Final = ("#1f78c1", "#ef843c", "#629e51")
# The colours of the roles that nodes report.
ROLES: Final = {LEADER: "#1f78c1", FOLLOWER: "#a6cee3", NOT_READY: "#f2b84b", AWAY: "#555555"}
STYLE: Final = (
    "body{font:14px sans-serif;margin:24px auto;max-width:1300px;color:#222}"
    "pre{background:#f4f4f4;padding:8px;white-space:pre-wrap}.bad{color:#b00020}"
    "text{font:11px sans-serif}rect.f{fill:#e24d42;opacity:.75}rect.b{fill:#e24d42;opacity:.08}"
)


class Role(NamedTuple):
    """The role that a node reported at a time."""

    at_s: float
    node: int
    role: str


class Axis:
    """Maps the time of a run to pixels."""

    def __init__(self, begin_s: float, end_s: float) -> None:
        self.begin_s = begin_s
        self._scale = (WIDTH - LEFT) / max(1e-9, end_s - begin_s)

    def x(self, at_s: float) -> float:
        return LEFT + (at_s - self.begin_s) * self._scale


def lanes(windows: Mapping[str, Sequence[Window]], axis: Axis) -> str:
    """Draw a row for each kind of fault."""
    parts = []
    for place, (name, found) in enumerate(sorted(windows.items())):
        y = place * LANE
        parts.append(f'<text x="0" y="{y + 12}">{html.escape(name)}</text>')
        for window in found:
            x, width = axis.x(window.from_s), axis.x(window.until_s) - axis.x(window.from_s)
            parts.append(
                f'<rect class="f" x="{x:.1f}" y="{y + 2}" width="{width:.1f}" height="12"/>'
            )
    height = len(windows) * LANE
    return f'<svg width="{WIDTH}" height="{height}">{"".join(parts)}</svg>'


def strips(roles: Iterable[Role], axis: Axis) -> str:
    """Draw a strip for each node, coloured by its role from one report to the next."""
    by_node: defaultdict[int, list[Role]] = defaultdict(list)
    for role in roles:
        by_node[role.node].append(role)
    parts = []
    for place, (node, told) in enumerate(sorted(by_node.items())):
        y = place * LANE
        parts.append(f'<text x="0" y="{y + 12}">node {node}</text>')
        for one, following in itertools.pairwise([*told, told[-1]]):
            begin_s = max(one.at_s, axis.begin_s)
            width = max(0.0, axis.x(following.at_s) - axis.x(begin_s))
            parts.append(
                f'<rect x="{axis.x(begin_s):.1f}" y="{y + 2}" width="{width:.1f}" height="12" '
                f'fill="{ROLES[one.role]}"><title>{one.role}</title></rect>'
            )
    y = len(by_node) * LANE + 12
    for place, (name, colour) in enumerate(ROLES.items()):
        x = LEFT + 110 * place
        parts.append(f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 14}" y="{y}">{name}</text>')
    return f'<svg width="{WIDTH}" height="{y + 6}">{"".join(parts)}</svg>'


def chart(
    title: str,
    lines: Mapping[int, Sequence[tuple[float, float]]],
    axis: Axis,
    windows: Iterable[Window],
) -> str:
    """Draw one line per node, with the faults in the background."""
    top = max((value for points in lines.values() for _, value in points), default=0.0) or 1.0
    parts = [
        f'<text x="0" y="12">{html.escape(title)}</text><text x="0" y="28">up to {top:.3g}</text>'
    ]
    for window in windows:
        x, width = axis.x(window.from_s), axis.x(window.until_s) - axis.x(window.from_s)
        parts.append(f'<rect class="b" x="{x:.1f}" y="0" width="{width:.1f}" height="{CHART}"/>')
    for node, points in sorted(lines.items()):
        up = (CHART - 8) / top
        marks = " ".join(f"{axis.x(at):.1f},{CHART - 2 - v * up:.1f}" for at, v in points)
        colour = COLOURS[node % len(COLOURS)]
        parts.append(f'<polyline points="{marks}" fill="none" stroke="{colour}"/>')
        parts.append(f'<text x="0" y="{48 + 14 * node}" fill="{colour}">node {node}</text>')
    return f'<svg width="{WIDTH}" height="{CHART}">{"".join(parts)}</svg>'


def seconds(
    ops: Iterable[Op], axis: Axis
) -> tuple[dict[int, list[tuple[float, float]]], dict[int, list[tuple[float, float]]]]:
    """Return acknowledged commands, and the p99 of their latency in ms, by node and second."""
    times: defaultdict[int, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    last = 0
    for op in ops:
        if op.outcome in COMMITTED:
            second = int(op.done_s - axis.begin_s)
            last = max(last, second)
            times[op.node][second].append((op.done_s - op.sent_s) * 1e3)
    rates, late = {}, {}
    for node, found in times.items():
        rates[node] = [(axis.begin_s + s, float(len(found.get(s, ())))) for s in range(last)]
        late[node] = [(axis.begin_s + s, percentile(ms, 0.99)) for s, ms in sorted(found.items())]
    return rates, late


def write(
    path: Path,
    title: str,
    windows: Mapping[str, Sequence[Window]],
    clients: Sequence[Sequence[Op]],
    roles: Sequence[Role],
    words: tuple[Sequence[str], Sequence[str]],
) -> None:
    """Write the page.

    Args:
        path: the file.
        title: names the run: what, seed, date.
        windows: the times of each kind of fault, on the clock of the clients.
        clients: their commands.
        roles: the reported role of each node, in order of time.
        words: figures, and findings.
    """
    ops = [op for client in clients for op in client]
    begin_s = min((op.sent_s for op in ops), default=0.0)
    axis = Axis(begin_s, max((op.done_s for op in ops), default=1.0))
    rates, late = seconds(ops, axis)
    shaded = [window for found in windows.values() for window in found]
    figures, findings = words
    verdict = "good" if not findings else f"{len(findings)} findings"
    parts = [
        f"<!doctype html><meta charset=utf-8><title>{html.escape(title)}</title>",
        f"<style>{STYLE}</style><h1>{html.escape(title)}: {verdict}</h1>",
        *(f'<p class="bad">{html.escape(line)}</p>' for line in findings),
        f"<pre>{html.escape(chr(10).join(figures))}</pre>",
        "<h2>Faults</h2>" + lanes(windows, axis),
        "<h2>Clients by node</h2>" + chart("acknowledged a second", rates, axis, shaded),
        chart("p99 of them, ms", late, axis, shaded),
        "<h2>Roles</h2>" + strips(roles, axis),
    ]
    path.write_text("".join(parts))
