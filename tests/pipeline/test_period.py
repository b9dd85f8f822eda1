"""The period of a report: the users' notations, defaults, and refusals."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beanpole.errors import ConfigurationError
from beanpoled.cli import main
from pyspark_beanpole.report.figures import Outside
from pyspark_beanpole.report.period import ANY, Asked, Period, asked, chosen, moment
from pyspark_beanpole.report.series import POINTS_MAX, STEPS_MIN, steps_of
from pyspark_beanpole.report.summary import empty_summary
from pyspark_beanpole.statistics.keys import DAY_US, MINUTE_US, SECOND_US

NOON_US = int(datetime(2026, 3, 2, 12, tzinfo=UTC).timestamp()) * SECOND_US
HOUR_US = 60 * MINUTE_US


@pytest.mark.parametrize(
    ("text", "found_us"),
    [
        ("2026-03-02T12:00", NOON_US),
        ("2026-03-02 12:00:00.000007", NOON_US + 7),
        ("2026-03-02", NOON_US - 12 * HOUR_US),
        ("2026-03-02T12:00Z", NOON_US),
        ("2026-03-02T14:00+02:00", NOON_US),
        ("90s", NOON_US - 90 * SECOND_US),
        ("15m", NOON_US - 15 * MINUTE_US),
        ("2h", NOON_US - 2 * HOUR_US),
        ("3d", NOON_US - 3 * DAY_US),
        ("1w", NOON_US - 7 * DAY_US),
        ("0h", NOON_US),
    ],
)
def test_a_time_as_users_write_it(text: str, found_us: int) -> None:
    assert moment("--since", text, NOON_US) == found_us


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2 h", "2", "-2h", "2H", "1.5h", "2026-13-01", "9999999h", "12:00",
             "1969-01-01", "0001-01-01", "9999-12-31", "\uff12h"],
)  # fmt: skip
def test_what_is_no_time_is_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["pipeline", "report", "--addresses", "127.0.0.1:1", "--to", "/nowhere"]
    assert main([*command, f"--since={text}"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"beanpole: --since {text!r} is not allowed: ")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--to", "s3a://k:s@b/x"], "argument --to: s3a://b/x is not allowed: it must be a path"),
        (["--to", ""], "argument --to: '' is no directory; the current one is ."),
        (["--to", "file://host/x"], "argument --to: file://host/x is not allowed: "),
        (["--wait-slo", "1e20"], "argument --wait-slo: '1e20' is not a number of seconds above 0"),
        (["--run-slo", "nan"], "argument --run-slo: 'nan' is not a number of seconds above 0"),
        (["--queue", "\udcff"], r"argument --queue: '\udcff' is not UTF-8: events show the bytes"),
        (["--patience", "0000000000099999"], "argument --patience: '0000000000099999' is not a "),
    ],
)
def test_other_wrong_options_are_one_line(
    more: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["pipeline", "report", "--addresses", "127.0.0.1:1", "--to", "/nowhere", *more])
    assert raised.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"beanpole pipeline report: error: {words}")


@pytest.mark.parametrize(
    "command", [["redrive", "--where", "tube = '\udcff'"], ["job", "--external-id", "\udcff"]]
)
def test_other_texts_that_are_not_utf_8_are_one_line(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["pipeline", *command, "--addresses", "127.0.0.1:1"])
    assert raised.value.code == 2
    assert "is not UTF-8: events show the bytes" in capsys.readouterr().err.splitlines()[-1]


def test_the_longest_period_has_one_before_it_with_a_date() -> None:
    period = chosen(asked("1970-01-01", "2999-12-31", NOON_US), NOON_US, NOON_US)
    assert empty_summary(None, period.before, Outside())["period"]["since"].startswith("0940-")
    with pytest.raises(ConfigurationError, match="its year must be 1970 to 2999"):
        moment("--until", "3000-01-01", NOON_US)


def test_times_in_the_wrong_order_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["pipeline", "report", "--addresses", "127.0.0.1:1", "--to", "/nowhere"]
    assert main([*command, "--since", "2h", "--until", "3h"]) == 2
    assert capsys.readouterr().err == "beanpole: --since '2h' must be earlier than --until '3h'\n"
    with pytest.raises(ConfigurationError, match="must be earlier than"):
        asked("2026-03-02", "2026-03-02", NOON_US)


BEGIN_US = NOON_US - 3 * DAY_US
LAST_US = NOON_US + 30 * SECOND_US


@pytest.mark.parametrize(
    ("wanted", "period"),
    [
        (ANY, Period(NOON_US + MINUTE_US - DAY_US, NOON_US + MINUTE_US)),
        (Asked(NOON_US - HOUR_US), Period(NOON_US - HOUR_US, NOON_US + MINUTE_US)),
        (Asked(None, NOON_US - HOUR_US), Period(NOON_US - HOUR_US - DAY_US, NOON_US - HOUR_US)),
        (Asked(NOON_US - HOUR_US, NOON_US), Period(NOON_US - HOUR_US, NOON_US)),
        # After the end of the log there is an empty period, which a page can report.
        (Asked(NOON_US + HOUR_US), Period(NOON_US + HOUR_US, NOON_US + HOUR_US + MINUTE_US)),
    ],
)
def test_ends_that_are_not_asked_for(wanted: Asked, period: Period) -> None:
    assert chosen(wanted, BEGIN_US, LAST_US) == period
    assert period.before.until_us == period.since_us
    assert period.before.length_us == period.length_us > 0


def test_a_short_log_is_shown_from_its_beginning() -> None:
    period = chosen(ANY, NOON_US + 61 * SECOND_US, NOON_US + 125 * SECOND_US)
    assert period == Period(NOON_US + MINUTE_US, NOON_US + 3 * MINUTE_US)


@settings(deadline=None)
@given(since_us=st.integers(0, 10**16), length_us=st.integers(1, POINTS_MAX * 43_200 * MINUTE_US))
def test_a_period_has_few_steps_that_cover_it(since_us: int, length_us: int) -> None:
    period = Period(since_us, since_us + length_us)
    steps = steps_of(period)
    assert steps.number <= POINTS_MAX + 1
    assert steps.first_min % steps.step_min == 0
    assert steps.first_min * MINUTE_US <= since_us
    assert (steps.first_min + steps.number * steps.step_min) * MINUTE_US >= period.until_us
    shorter = STEPS_MIN[max(STEPS_MIN.index(steps.step_min) - 1, 0)]
    assert steps.step_min == 1 or length_us + 2 * MINUTE_US > POINTS_MAX * shorter * MINUTE_US
    assert int(steps.minutes[0]) == steps.first_min and len(steps.minutes) == steps.number
