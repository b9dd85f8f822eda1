"""When a node reports its condition: changes at once, waits repeatedly, absent members."""

from beanpoled.host.seam import INFO, WARNING
from beanpoled.reporting import Reporter


class Told:
    """A condition that the test sets."""

    def __init__(self) -> None:
        self.state = "starting"
        self.waits = ""
        self.away = ""

    def waits_for(self) -> str:
        return self.waits

    def absent_words(self) -> str:
        return self.away


class Scene:
    """A reporter, its clock, and its log lines since the last call."""

    def __init__(self) -> None:
        self.told = Told()
        self.now_s = 100.0
        self.logged: list[tuple[float, str, int]] = []
        self.shown: list[str] = []
        self.reporter = Reporter(self.told, self.log, self.shown.append)

    def log(self, line: str, level: int = INFO) -> None:
        self.logged.append((self.now_s, line, level))

    def run(self, seconds: float) -> list[tuple[float, str, int]]:
        for _ in range(int(seconds / 0.5)):
            self.reporter.look(self.now_s)
            self.now_s += 0.5
        logged, self.logged = self.logged, []
        return logged


def test_a_wait_is_told_every_ten_seconds_with_what_is_true_then() -> None:
    scene = Scene()
    scene.told.waits = "waiting for a majority: b refused"
    logged = scene.run(20)
    assert [at for at, _, _ in logged] == [103.0, 113.0]
    assert {line for _, line, _ in logged} == {"starting: waiting for a majority: b refused"}
    assert {level for _, _, level in logged} == {WARNING}
    scene.told.waits = "waiting for a majority: b timed out"
    assert scene.run(4)[0][1] == "starting: waiting for a majority: b timed out"


def test_an_election_is_no_wait() -> None:
    scene = Scene()
    for _ in range(5):
        scene.told.waits = "waiting for a leader"
        assert scene.run(2) == []
        scene.told.waits = ""
        assert scene.run(1) == []


def test_what_is_true_now_is_shown_when_it_changes() -> None:
    scene = Scene()
    scene.told.waits = "waiting for a leader"
    scene.run(20)
    scene.told.waits, scene.told.state = "", "serving"
    scene.run(20)
    assert scene.shown == ["starting: waiting for a leader", "serving"]


def test_each_change_of_state_is_told_once() -> None:
    scene = Scene()
    scene.run(1)
    for state, before in (("serving", "starting"), ("cut off", "serving"), ("serving", "cut off")):
        scene.told.state = state
        assert scene.run(2) == [(scene.now_s - 2, f"state: {state}, was {before}", INFO)]


def test_members_that_are_away_are_told_once_in_a_while_and_their_return() -> None:
    scene = Scene()
    scene.told.state, scene.told.away = "serving", "c refused"
    lines = [line for _, line, _ in scene.run(400)]
    assert lines == ["state: serving, was starting", *["serving without c refused"] * 2]
    scene.told.away = ""
    assert [line for _, line, _ in scene.run(400)] == ["all members are linked again"]


def test_a_short_absence_is_not_told() -> None:
    scene = Scene()
    scene.told.state, scene.told.away = "serving", "c refused"
    scene.run(5)
    scene.told.away = ""
    assert scene.run(400) == []
