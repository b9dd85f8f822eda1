"""docs/metrics.md: all metric families of a node, as `http/metrics.py` renders them.

The page is read from the rendered text, so nothing of it can differ from what a node serves. The
labels of a family come from its samples, so `FULL` has at least one value for each of them.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from beanpoled.http import metrics
from beanpoled.view import (
    ClientFigures,
    Lately,
    Metrics,
    QlessCounts,
    QlessFigures,
    QlessQueueFigures,
    Quantiles,
    QueueFigures,
    SpaceFigures,
)
from tests.unit.beanpoled.fakes import FakeView
from tests.unit.references.markdown import code, head, table, text

_HEAD: Final = (
    "All metrics that `/metrics` of a node serves in the Prometheus text format. "
    "[operating.md](operating.md#metrics) explains those to watch, and "
    "[deploying.md](deploying.md#what-to-watch) the alerts."
)
_SAMPLE: Final = re.compile(r"^\w+(?:\{(.*)\})? \S+$")
_LABEL: Final = re.compile(r'([a-z_]+)="(?:[^"\\]|\\.)*"')
# The bounds of a histogram, and the label that the introduction of a group names.
_UNNAMED: Final = {"le", "scope"}
_TITLES: Final = ("metric", "type", "labels", "meaning")
_SHARED: Final = (
    'Of the whole cluster, with the label `scope="cluster"`: they are the same at all nodes, so '
    "do not sum them over nodes. A node serves them once it has caught up."
)
# The first family of each group, in the order of the page; its title; words about it.
GROUPS: Final = (
    ("beanpole_build_info", "Raft", "Of the node that serves the page."),
    ("beanpole_serving", "Node", "Disk, log, event loop, events, refusals and limits of the node."),
    ("beanpole_connections", "Clients", "Of the clients of the node."),
    ("beanpole_qless_calls_total", "Clients of qless", "Of the clients of the node."),
    ("beanpole_jobs", "Jobs", _SHARED),
    ("beanpole_queue_jobs", "Queues and protocols", _SHARED),
    ("beanpole_qless_jobs", "Jobs of qless", _SHARED),
    ("process_cpu_seconds_total", "Process", "In the standard names of Prometheus."),
)
_COUNTS: Final = Quantiles(1.0, 1.0, 1.0, 1)
FULL: Final = Metrics(
    fsync_counts=(0,) * 8,
    commit_counts=(0,) * 8,
    peer_refusals={"x": 1},
    tls_refusals={"x": 1},
    tls_files_end_s={"x": 1.0},
    auth_refusals={"x": 1},
    clients={
        "qless": ClientFigures(commands_total={"x": 1}, calls_total={"x": 1}, errors_total={"x": 1})
    },
    spaces={"beanstalk": SpaceFigures()},
    qless=QlessFigures(queues=(QlessQueueFigures(b"x", False, QlessCounts()),)),
    queues=(QueueFigures("beanstalk", "x", lately=Lately(wait=_COUNTS, run=_COUNTS)),),
    limits={"x": 1},
)


class Family(NamedTuple):
    """A family as it is served; `labels` are those of its samples, without the scope."""

    name: str
    kind: str
    words: str
    labels: tuple[str, ...]


def families() -> Iterator[Family]:
    """Yield all families in the order in which a node serves them."""
    view = FakeView()
    view.numbers = FULL
    pieces = metrics.render(view).split("# HELP ")
    for piece in pieces[1:]:
        first, second, *samples = piece.splitlines()
        name, _, words = first.partition(" ")
        assert samples, f"{name} has no sample: give FULL a value for it"
        labels: dict[str, None] = {}
        for sample in samples:
            found = _SAMPLE.match(sample)
            assert found, sample
            labels |= dict.fromkeys(_LABEL.findall(found[1] or ""))
        shown = (label for label in labels if label not in _UNNAMED)
        yield Family(name, second.rpartition(" ")[2], words, tuple(shown))


def page() -> str:
    """Return the page."""
    lines = head("Metrics", "the metrics that a node renders", _HEAD)
    groups: dict[str, list[Family]] = {}
    firsts = {first for first, _, _ in GROUPS}
    current = ""
    for family in families():
        current = family.name if family.name in firsts else current
        groups.setdefault(current, []).append(family)
    for first, title, words in GROUPS:
        assert first in groups, f"{first} is not served: name another first family of {title}"
        lines += [f"## {title}", "", words, ""]
        lines += table(_TITLES, [_row(one) for one in groups[first]])
    return "\n".join(lines[:-1]) + "\n"


def _row(family: Family) -> tuple[str, ...]:
    words = family.words.removesuffix(metrics.SAME).rstrip()
    return (code(family.name), family.kind, ", ".join(map(code, family.labels)), text(words))
