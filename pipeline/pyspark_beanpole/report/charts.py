"""Charts as SVG for a page of HTML: frames with axes, and lines, steps and bars in them.

Colours are variables of the page's style sheet, so that a chart follows light and dark.
"""

from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

from pyspark_beanpole.report.scales import Scale

WIDTH: Final = 460
HEIGHT: Final = 250
LEFT: Final = 58
RIGHT: Final = 14
TOP: Final = 50
BOTTOM: Final = 42
# A letter of the axes' size is about this wide; words that would touch are left out.
LETTER: Final = 6.2

Point = tuple[float, float]


class Line(NamedTuple):
    """A line through points; `steps` holds each value until the next point."""

    name: str
    colour: int  # the number of a colour of the style sheet
    points: Sequence[Point]
    steps: bool = False


class Bar(NamedTuple):
    """A bar from one place of the x axis to another, and what it says when pointed at."""

    low: float
    high: float
    value: float
    words: str


class Mark(NamedTuple):
    """A dashed line at a place of the x axis."""

    at: float
    words: str


class Chart:
    """A frame with axes, into which lines and bars are drawn."""

    def __init__(self, title: str, x: Scale, y: Scale, x_label: str, y_label: str) -> None:
        self._x, self._y = x, y
        self._names: list[tuple[str, int]] = []
        self._parts = [
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
            _text(LEFT - 44, 16, title, "start", "title"),
            _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, x_label, "middle", "label"),
            _text(LEFT - 44, 34, y_label, "start", "label"),
        ]
        for value, words in y.ticks:
            up = self._up(value)
            self._parts.append(
                f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up:.1f}" y2="{up:.1f}"/>'
            )
            self._parts.append(_text(LEFT - 6, up + 4, words, "end", "tick"))
        self._ticks_below()

    def _ticks_below(self) -> None:
        free_from = 0.0
        for value, words in self._x.ticks:
            across = self._across(value)
            if not LEFT - 1 <= across <= WIDTH - RIGHT + 1:
                continue
            self._parts.append(
                f'<line class="grid" x1="{across:.1f}" x2="{across:.1f}" '
                f'y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 4}"/>'
            )
            half = len(words) * LETTER / 2
            middle = min(across, WIDTH - half)
            if middle - half < free_from:
                continue
            free_from = middle + half + LETTER
            self._parts.append(_text(middle, HEIGHT - BOTTOM + 17, words, "middle", "tick"))

    def _across(self, value: float) -> float:
        return LEFT + self._x.place(value) * (WIDTH - LEFT - RIGHT)

    def _up(self, value: float) -> float:
        return HEIGHT - BOTTOM - self._y.place(value) * (HEIGHT - TOP - BOTTOM)

    def line(self, line: Line) -> None:
        """Draw a line, if it has points."""
        self._names.append((line.name, line.colour))
        places: list[Point] = []
        for x, y in line.points:
            if line.steps and places:
                places.append((self._across(x), places[-1][1]))
            places.append((self._across(x), self._up(y)))
        if not places:
            return
        path = " ".join(f"{across:.1f},{up:.1f}" for across, up in places)
        self._parts.append(f'<polyline class="line c{line.colour}" points="{path}"/>')

    def bars(self, name: str, colour: int, bars: Sequence[Bar]) -> None:
        """Draw bars that stand on the x axis."""
        self._names.append((name, colour))
        ground = HEIGHT - BOTTOM
        for bar in bars:
            low, high, up = self._across(bar.low), self._across(bar.high), self._up(bar.value)
            gap = 0.5 if high - low > 3 else 0.0
            self._parts.append(
                f'<rect class="bar c{colour}" x="{low:.2f}" y="{up:.1f}" '
                f'width="{max(high - low - gap, 0.6):.2f}" height="{max(ground - up, 0):.1f}">'
                f"<title>{escape(bar.words)}</title></rect>"
            )

    def marks(self, marks: Sequence[Mark]) -> None:
        """Draw places of the x axis, each with its words in a row of its own."""
        for row, mark in enumerate(marks):
            across = self._across(mark.at)
            if not LEFT <= across <= WIDTH - RIGHT:
                continue
            self._parts.append(
                f'<line class="mark" x1="{across:.1f}" x2="{across:.1f}" '
                f'y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
            )
            right = across < WIDTH * 0.7
            self._parts.append(
                _text(
                    across + (4 if right else -4),
                    TOP + 10 + 12 * row,
                    mark.words,
                    "start" if right else "end",
                    "tick over",
                )
            )

    def done(self) -> str:
        """Return the chart, with a legend where there is more than one thing."""
        across = float(WIDTH - RIGHT)
        if len(self._names) > 1:
            for name, colour in reversed(self._names):
                across -= len(name) * LETTER
                self._parts.append(_text(across, 34, name, "start", "tick"))
                across -= 14
                self._parts.append(
                    f'<rect class="bar c{colour}" x="{across:.1f}" y="25" width="10" height="10"/>'
                )
                across -= 10
        return "".join([*self._parts, "</svg>"])


def _text(x: float, y: float, words: str, anchor: str, kind: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {place}>{escape(words)}</text>'
