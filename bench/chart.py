"""Draw line charts as SVG, with a logarithmic x axis and a linear y axis."""

import math
from collections.abc import Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

WIDTH: Final = 640
PLOT_HEIGHT: Final = 220
LEFT: Final = 70
RIGHT: Final = 16
BOTTOM: Final = 44
# The top of the legend, its columns and row height, and the label of the y axis below it.
LEGEND: Final = 34
LEGEND_COLUMNS: Final = 3
LEGEND_ROW: Final = 14
LABEL: Final = 22
# Colours that colour-blind people can distinguish (Okabe and Ito). Further lines reuse them and are
# dashed.
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
# An axis ends at one of these times a power of ten, so that a fifth of it is a short number, too.
FACTORS: Final = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)

Lines = Mapping[str, Sequence[tuple[float, float]]]


def top_of(value: float) -> float:
    """Return the next of FACTORS times a power of ten, as the end of an axis."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in FACTORS if factor * power >= value)


def draw(title: str, x_label: str, y_label: str, lines: Lines) -> str:
    """Return a chart; the x axis is logarithmic, with 0 one step below 1."""
    points = [point for line in lines.values() for point in line]
    if not points:
        raise ValueError("a chart needs points")
    top = top_of(max(max(y for _, y in points), 1.0))
    ticks = sorted({x for x, _ in points})
    shown = [_step(x) for x in ticks]
    first, width = shown[0], max(shown[-1] - shown[0], 1e-9)
    plot = LEGEND + math.ceil(len(lines) / LEGEND_COLUMNS) * LEGEND_ROW + LABEL
    floor = plot + PLOT_HEIGHT
    height = floor + BOTTOM

    def across(x: float) -> float:
        return LEFT + (_step(x) - first) / width * (WIDTH - LEFT - RIGHT)

    def up(y: float) -> float:
        return floor - y / top * PLOT_HEIGHT

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif" font-size="12" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        _text(LEFT, 18, title, "start", 'font-weight="bold"'),
        _text(WIDTH / 2, height - 8, x_label, "middle"),
        _text(LEFT, plot - 8, y_label, "start", 'fill="#555"'),
    ]
    for part in range(6):
        y = top * part / 5
        parts.append(_line([(LEFT, up(y)), (WIDTH - RIGHT, up(y))], "#ddd", 1))
        parts.append(_text(LEFT - 6, up(y) + 4, _short(y), "end"))
    parts += [_text(across(x), floor + 16, _short(x), "middle") for x in ticks]
    for number, (name, line) in enumerate(lines.items()):
        again, tint = divmod(number, len(COLOURS))
        colour = COLOURS[tint]
        places = [(across(x), up(y)) for x, y in sorted(line)]
        parts.append(_line(places, colour, 2, 'stroke-dasharray="6 4"' if again else ""))
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        row, column = divmod(number, LEGEND_COLUMNS)
        mark = "\u25cb" if again else "\u25cf"
        at = (LEFT + column * 190, LEGEND + row * LEGEND_ROW)
        parts.append(_text(*at, f"{mark} {name}", "start", f'fill="{colour}"'))
    return "\n".join([*parts, "</svg>", ""])


def _step(x: float) -> float:
    return math.log10(x) + 1 if x >= 1 else 0.0


def _short(value: float) -> str:
    if value % 100 and value >= 1e3:
        return f"{value:,.0f}"
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(text)}</text>'


def _line(points: Sequence[tuple[float, float]], colour: str, width: int, more: str = "") -> str:
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="{width}" {more}/>'
    )
