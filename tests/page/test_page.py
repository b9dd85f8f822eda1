"""The report's page in a real browser: `make test-page`, which needs Chromium.

Here the browser measures the widths of letters; tests/pipeline/test_report.py checks the same by
estimates, without a browser. No test depends on speed.
"""

import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from pyspark_beanpole.report.charts import LABEL_PX, TITLE_PX, width_of
from tests.pipeline.test_report import pages

# Debian's name is chromium; other systems use one of the others. CHROMIUM sets a different one.
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = (
    "this test needs Chromium: apt-get install chromium (or set CHROMIUM to the program); "
    "`make test` does not run it"
)
TIMEOUT_S = 120
# Rounding of the browser's measurements, in pixels.
SLACK_PX = 0.6
WIDTHS = (1400, 800)

# This script runs only in a copy of the page: the shipped page has no script.
MEASURE = """
<script>
addEventListener('load', () => {
  const box = one => {
    const r = one.getBoundingClientRect();
    return [r.left, r.top, r.right, r.bottom];
  };
  const charts = [...document.querySelectorAll('svg')].map(svg => ({
    name: svg.getAttribute('aria-label'),
    frame: box(svg),
    scale: svg.getBoundingClientRect().width / svg.viewBox.baseVal.width,
    texts: [...svg.querySelectorAll('text')].map(text => [text.textContent, ...box(text)]),
    titles: [...svg.querySelectorAll('text.title')].map(text => text.textContent),
  }));
  const inner = [...document.querySelectorAll('.wide, .card, .tile, h1, h2, li, p, pre, nav')];
  const found = {
    width: innerWidth,
    page: document.documentElement.scrollWidth,
    charts,
    parts: inner.map(one => [
      one.className || one.tagName, one.scrollWidth, one.clientWidth, one.textContent.slice(0, 60),
    ]),
    cells: [...document.querySelectorAll('td, th')].map(cell => {
      const range = document.createRange();
      range.selectNodeContents(cell);
      return [cell.textContent.slice(0, 60), ...box(range), ...box(cell)];
    }),
  };
  const told = document.createElement('pre');
  told.id = 'measured';
  told.textContent = JSON.stringify(found);
  document.body.append(told);
});
</script>
"""


def browser() -> str:
    """Return the browser's program; fail without one."""
    named = os.environ.get("CHROMIUM")
    found = named or next(filter(None, map(shutil.which, NAMES)), None)
    assert found, MISSING
    return found


def run(folder: Path, html: str, width: int, *more: str) -> str:
    """Let the browser load a page; return its output."""
    path = folder / "page.html"
    path.write_text(html, encoding="utf-8")
    command = [
        browser(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        f"--user-data-dir={folder / 'profile'}", f"--window-size={width},1000", *more,
        path.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def measured(folder: Path, name: str, width: int) -> dict[str, Any]:
    """Return the browser's measurements of a page."""
    html = pages()[name].replace("</body>", f"{MEASURE}</body>")
    dumped = run(folder, html, width, "--dump-dom")
    told = re.search(r'<pre id="measured">(.*?)</pre>', dumped, re.DOTALL)
    assert told is not None, dumped[-2000:]
    found: dict[str, Any] = json.loads(unescape(told[1]))
    assert found["width"] == width
    return found


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["busy", "names", "one", "event", "month"])
def test_everything_has_its_room(tmp_path: Path, name: str, width: int) -> None:
    found = measured(tmp_path, name, width)
    assert found["page"] <= width, "the page itself never scrolls sideways"
    for kind, wants, has, words in found["parts"]:
        if kind == "wide" and width < 1400:
            # On a narrow screen a table may scroll inside its own frame.
            continue
        assert wants <= has + 1 or has == 0, (kind, wants, has, words)
    for words, left, _, right, _, cell_left, _, cell_right, _ in found["cells"]:
        assert left >= cell_left - SLACK_PX and right <= cell_right + SLACK_PX, words
    assert len(found["charts"]) >= 6
    for chart in found["charts"]:
        check_chart(chart)


def check_chart(chart: dict[str, Any]) -> None:
    """Check that no two texts touch, and that none leaves the frame."""
    left, top, right, bottom = chart["frame"]
    texts = chart["texts"]
    assert len(texts) >= 4
    for place, (words, x1, y1, x2, y2) in enumerate(texts):
        where = (chart["name"], words)
        assert x1 >= left - SLACK_PX and x2 <= right + SLACK_PX, where
        assert y1 >= top - SLACK_PX and y2 <= bottom + SLACK_PX, where
        is_title = words in chart["titles"]
        estimated = width_of(words, TITLE_PX if is_title else LABEL_PX, bold=is_title)
        assert (x2 - x1) / chart["scale"] <= estimated + SLACK_PX, "estimates are not too small"
        for other, a1, b1, a2, b2 in texts[place + 1 :]:
            beside = x2 <= a1 + SLACK_PX or a2 <= x1 + SLACK_PX
            # Boxes of text have room above and below the letters themselves.
            room = 0.15 * (y2 - y1)
            above = y2 - room <= b1 + room or b2 - room <= y1 + room
            assert beside or above, (*where, other)


def test_a_page_can_be_read_in_the_dark(tmp_path: Path) -> None:
    """A browser that prefers dark gets other colours, by the style sheet alone."""
    html = pages()["event"].replace(
        "</body>",
        "<script>addEventListener('load', () => { document.title = "
        "getComputedStyle(document.body).backgroundColor; });</script></body>",
    )
    light = run(tmp_path, html, 800, "--dump-dom")
    dark = run(tmp_path, html, 800, "--dump-dom", "--blink-settings=preferredColorScheme=0")
    titles = [re.search(r"<title>(.*?)</title>", one) for one in (light, dark)]
    assert [title[1] for title in titles if title] == ["rgb(255, 255, 255)", "rgb(20, 23, 26)"]
