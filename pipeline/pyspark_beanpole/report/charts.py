"""Draw charts as SVG for an HTML page: panels with axes, and lines, steps, bars and marks in them.

A drawing records where its labels are, and leaves out a label that would touch another or leave the
frame, so that labels never overlap. `plots` chooses which figures are drawn. Colours are variables
of the page's style sheet, so charts follow its light and dark modes.
"""

import unicodedata
from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

from pyspark_beanpole.report.scales import Scale

# The style sheet has the same sizes.
TITLE_PX: Final = 13
LABEL_PX: Final = 12
# Upper bounds of the widths of letters, as a fraction of the font size; DejaVu Sans is the widest
# of the fonts that browsers use for `system-ui`.
_NARROW: Final = frozenset("iljI.,:;'|! ()[]ftr/")
_WIDE: Final = frozenset("mwMW@%≤≥")
_USUAL_SIGNS: Final = frozenset("µ·")
_NARROW_EM, _USUAL_EM, _CAPITAL_EM, _WIDE_EM = 0.42, 0.66, 0.8, 1.02
# Bold letters are wider.
_BOLD: Final = 1.15
# The distance between labels, in pixels.
APART_PX: Final = 4.0
# The space above a panel: its title, and the legend beside it.
HEAD_PX: Final = 38
# The space below the last panel: ticks, and the name of the axis.
FOOT_PX: Final = 40

Point = tuple[float, float]


class Line(NamedTuple):
    """A line through points; with `steps` each value holds until the next point."""

    colour: int  # the number of a colour of the style sheet
    points: Sequence[Point]
    steps: bool = False
    dashed: bool = False


class Bar(NamedTuple):
    """A bar over an interval of the x axis, and its tooltip."""

    low: float
    high: float
    value: float
    words: str


class Mark(NamedTuple):
    """A dashed line at a value of the x axis."""

    at: float
    words: str


class Box(NamedTuple):
    """The box of a label, in pixels of the drawing."""

    left: float
    top: float
    right: float
    bottom: float

    def touches(self, other: "Box") -> bool:
        """Whether the boxes are closer than APART_PX horizontally and overlap vertically."""
        return (
            self.left < other.right + APART_PX
            and other.left < self.right + APART_PX
            and self.top < other.bottom
            and other.top < self.bottom
        )


class Area(NamedTuple):
    """The inside of a panel's axes, in pixels of the drawing."""

    left: float
    top: float
    right: float
    bottom: float


def width_of(words: str, size_px: float, bold: bool = False) -> float:
    """Return an upper bound of the width of a text, in pixels."""
    return sum(_em(letter) for letter in words) * size_px * (_BOLD if bold else 1.0)


def _em(letter: str) -> float:
    if letter in _NARROW:
        return _NARROW_EM
    if letter in _WIDE or (not letter.isascii() and letter not in _USUAL_SIGNS):
        return _WIDE_EM if unicodedata.combining(letter) == 0 else 0.0
    return _CAPITAL_EM if letter.isupper() else _USUAL_EM


class Drawing:
    """An SVG of a fixed size, and the labels in it."""

    def __init__(self, width: float, height: float, about: str) -> None:
        self.width, self.height = width, height
        self.boxes: list[Box] = []
        self._parts = [
            f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(about)}">'
        ]

    def add(self, part: str) -> None:
        """Add a piece of SVG."""
        self._parts.append(part)

    def write(
        self, x: float, y: float, words: str, anchor: str, kind: str, sign_px: float = 0.0
    ) -> bool:
        """Write a text with its base line at `y`; return False if there is no room for it.

        Args:
            x: where the text begins, has its middle, or ends, depending on `anchor`.
            y: the base line.
            words: the text.
            anchor: `start`, `middle` or `end`.
            kind: a class of the style sheet: `title`, `label`, `tick`, `over`.
            sign_px: the space to keep free before the text, for a sign that is drawn there.
        """
        size_px = TITLE_PX if kind == "title" else LABEL_PX
        width = width_of(words, size_px, bold=kind == "title")
        left = x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
        box = Box(left - sign_px, y - size_px, left + width, y + size_px * 0.3)
        inside = box.left >= 0 and box.right <= self.width and box.bottom <= self.height
        if not inside or any(box.touches(other) for other in self.boxes):
            return False
        self.boxes.append(box)
        place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
        self.add(f'<text class="{kind}" {place}>{escape(words)}</text>')
        return True

    def done(self) -> str:
        """Return the SVG."""
        return "".join([*self._parts, "</svg>"])


class Panel:
    """Axes in a drawing that holds lines and bars."""

    def __init__(self, drawing: Drawing, area: Area, title: str, x: Scale, y: Scale) -> None:
        """Draw the y axis with its grid lines, and the title above it."""
        self._on, self._area, self._x, self._y = drawing, area, x, y
        drawing.write(2, area.top - 14, title, "start", "title")
        for value, words in y.ticks:
            up = self._up(value)
            drawing.add(_straight("grid", area.left, up, area.right, up))
            drawing.write(area.left - 6, up + 4, words, "end", "tick")

    def ticks_below(self, label: str) -> None:
        """Write the values of the x axis below the panel, and the axis's label."""
        area = self._area
        ticks = []
        for value, words in self._x.ticks:
            across = self._across(value)
            if not area.left - 1 <= across <= area.right + 1:
                continue
            half = width_of(words, LABEL_PX) / 2
            ticks.append((min(across, self._on.width - half), words))
            self._on.add(_straight("grid", across, area.bottom, across, area.bottom + 4))
        stride = next((n for n in range(1, len(ticks)) if self._fit(ticks[::n])), 1)
        for across, words in ticks[::stride]:
            self._on.write(across, area.bottom + 17, words, "middle", "tick")
        middle = (area.left + area.right) / 2
        self._on.write(middle, area.bottom + FOOT_PX - 6, label, "middle", "label")

    def _fit(self, ticks: Sequence[tuple[float, str]]) -> bool:
        """Whether texts centred at consecutive places leave room between them."""
        halves = [width_of(words, LABEL_PX) / 2 for _, words in ticks]
        return all(
            ticks[place + 1][0] - halves[place + 1] >= ticks[place][0] + halves[place] + APART_PX
            for place in range(len(ticks) - 1)
        )

    def legend(self, names: Sequence[tuple[str, int]]) -> None:
        """Write names with their colours above the panel, aligned right."""
        right, top = self._area.right, self._area.top - 23
        for name, colour in reversed(names):
            begin = right - width_of(name, LABEL_PX)
            if not self._on.write(begin, top + 9, name, "start", "tick", sign_px=16):
                return
            left = begin - 14
            self._on.add(
                f'<rect class="bar c{colour}" x="{left:.1f}" y="{top:.1f}" width="10" height="10"/>'
            )
            right = left - 12

    def line(self, line: Line) -> None:
        """Draw a line, if it has points."""
        places: list[str] = []
        last: Point | None = None
        for x, y in line.points:
            across, up = round(self._across(x), 1), round(self._up(y), 1)
            if last is None:
                places.append(f"M{across:g} {up:g}")
            elif line.steps:
                # A step at the same height needs no corner.
                if up != last[1]:
                    places.append(f"H{across:g}V{up:g}")
            else:
                places.append(f"L{across:g} {up:g}")
            last = (across, up)
        if last is None:
            return
        if line.steps:
            places.append(f"H{last[0]:g}")
        dashed = " dashed" if line.dashed else ""
        self._on.add(f'<path class="line c{line.colour}{dashed}" d="{"".join(places)}"/>')

    def bars(self, colour: int, bars: Sequence[Bar]) -> None:
        """Draw bars that stand on the x axis."""
        ground = self._area.bottom
        for bar in bars:
            low, high, up = self._across(bar.low), self._across(bar.high), self._up(bar.value)
            gap = 0.5 if high - low > 3 else 0.0
            self._on.add(
                f'<rect class="bar c{colour}" x="{low:.2f}" y="{up:.1f}" '
                f'width="{max(high - low - gap, 0.6):.2f}" height="{max(ground - up, 0):.1f}">'
                f"<title>{escape(bar.words)}</title></rect>"
            )

    def marks(self, marks: Sequence[Mark]) -> None:
        """Draw marks of the x axis; each gets its text in the first row that has room."""
        area = self._area
        for mark in marks:
            across = self._across(mark.at)
            if not area.left <= across <= area.right:
                continue
            self._on.add(_straight("mark", across, area.top, across, area.bottom))
            places = [
                (across + shift, area.top + 12 + 17 * row, anchor)
                for row in range(len(marks))
                for shift, anchor in ((4, "start"), (-4, "end"))
            ]
            any(self._on.write(x, y, mark.words, anchor, "tick over") for x, y, anchor in places)

    def level(self, value: float, words: str) -> None:
        """Draw a dashed line at a value of the y axis, if it is within the axis."""
        if not 0 <= self._y.place(value) <= 1:
            return
        up = self._up(value)
        self._on.add(_straight("mark", self._area.left, up, self._area.right, up))
        self._on.write(self._area.right - 4, up - 4, words, "end", "tick over")

    def _across(self, value: float) -> float:
        return self._area.left + self._x.place(value) * (self._area.right - self._area.left)

    def _up(self, value: float) -> float:
        return self._area.bottom - self._y.place(value) * (self._area.bottom - self._area.top)


def _straight(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'
