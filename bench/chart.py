"""Line charts as SVG, with a logarithmic axis for what grows by tens."""

import math
from collections.abc import Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

WIDTH: Final = 640
HEIGHT: Final = 320
LEFT: Final = 70
RIGHT: Final = 16
TOP: Final = 56
BOTTOM: Final = 44
# Told apart also by people who do not see all colours (Okabe and Ito).
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")

Lines = Mapping[str, Sequence[tuple[float, float]]]


def top_of(value: float) -> float:
    """Return the next of 1, 2, 5 times a power of ten, for the end of an axis."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value)


def draw(title: str, x_label: str, y_label: str, lines: Lines) -> str:
    """Return a chart; x is drawn logarithmically, with 0 one step before the smallest."""
    points = [point for line in lines.values() for point in line]
    if not points:
        raise ValueError("a chart needs points")
    top = top_of(max(max(y for _, y in points), 1.0))
    ticks = sorted({x for x, _ in points})
    shown = [_step(x) for x in ticks]
    first, width = shown[0], max(shown[-1] - shown[0], 1e-9)

    def across(x: float) -> float:
        return LEFT + (_step(x) - first) / width * (WIDTH - LEFT - RIGHT)

    def up(y: float) -> float:
        return HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="12" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, 18, title, "start", 'font-weight="bold"'),
        _text(WIDTH / 2, HEIGHT - 8, x_label, "middle"),
        _text(LEFT, TOP - 8, y_label, "start", 'fill="#555"'),
    ]
    for part in range(6):
        y = top * part / 5
        parts.append(_line([(LEFT, up(y)), (WIDTH - RIGHT, up(y))], "#ddd", 1))
        parts.append(_text(LEFT - 6, up(y) + 4, _short(y), "end"))
    parts += [_text(across(x), HEIGHT - BOTTOM + 16, _short(x), "middle") for x in ticks]
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [(across(x), up(y)) for x, y in sorted(line)]
        parts.append(_line(places, colour, 2))
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        left = LEFT + number % 3 * 190
        row = 34 + number // 3 * 14
        parts.append(_text(left, row, f"\u25cf {name}", "start", f'fill="{colour}"'))
    return "\n".join([*parts, "</svg>", ""])


def _step(x: float) -> float:
    return math.log10(x) + 1 if x >= 1 else 0.0


def _short(value: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(text)}</text>'


def _line(points: Sequence[tuple[float, float]], colour: str, width: int) -> str:
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="{width}"/>'
