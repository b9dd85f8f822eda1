"""docs/operating.md names every setting and metric, with the defaults that the code has."""

import re
from pathlib import Path

from beanpoled.config.node import SETTINGS
from beanpoled.config.settings import GIB, KIB, MIB
from beanpoled.http import metrics
from tests.unit.beanpoled.fakes import FakeView

PAGE = (Path(__file__).resolve().parents[3] / "docs/operating.md").read_text()
SIZES = {"KiB": KIB, "MiB": MIB, "GiB": GIB}


def value(text: str) -> object:
    """Parse a default in the notation of the page."""
    number, _, unit = text.replace(",", "").partition(" ")
    if number.isdecimal():
        return int(number) * SIZES.get(unit, 1)
    return {"(must be given)": None, "none": "", "half of the memory": 0}.get(text, text.strip("`"))


def test_the_table_of_settings_is_that_of_the_code() -> None:
    rows = dict(re.findall(r"^\| `([a-z_]+)` \| ([^|]+) \| [^|]+ \| [^|]+ \|$", PAGE, re.M))
    assert list(rows) == [setting.name for setting in SETTINGS]
    for setting in SETTINGS:
        default = setting.default
        if isinstance(default, tuple):
            (default,) = default
        assert value(rows[setting.name]) == (default if default != {} else ""), setting.name


def test_the_metrics_that_the_page_names_are_served() -> None:
    named = set(re.findall(r"`(beanpole_[a-z_]+)`", PAGE))
    served = set(re.findall(r"^# TYPE (\S+)", metrics.render(FakeView()), re.M))
    assert len(named) > 10
    assert named <= served
