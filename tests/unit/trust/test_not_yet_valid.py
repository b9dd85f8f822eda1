"""Certificates and CAs that are not valid yet, or have expired: what they replace, who tells."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from beanpole.core.users import OPEN
from beanpoled import checking, main
from beanpoled.checking import GOOD, Finding, _certificates
from beanpoled.examining import ERROR, examine
from beanpoled.trust.certificates import Certificates, Files
from beanpoled.trust.trust import Trust
from tests.integration.support.authority import Authority
from tests.unit.beanpoled.fakes import FakeView
from tests.unit.node.stage import config

DAY_S = 86_400.0
SETTINGS = {"tls_": "tls_client_ca_file", "peer_tls_": "peer_tls_ca_file"}


class Dated:
    """The files of one node, with times that a test chooses, and the clock that judges them.

    Attributes:
        told: the logged lines.
    """

    def __init__(self, folder: Path, prefix: str) -> None:
        self.authority = Authority(folder / "ca")
        certificate, key = self.authority.make("n0")
        self.paths = {"n0": certificate, "ca": self.authority.ca}
        self.names = {"n0": f"{prefix}certificate_file", "ca": SETTINGS[prefix]}
        self.settings = {self.names[one]: path for one, path in self.paths.items()}
        self.settings[f"{prefix}key_file"] = key
        name = "n0" * (prefix == "peer_tls_")
        self.files = Files(prefix, certificate, key, self.authority.ca, "", name)
        self.passed_s = 0.0
        self.told: list[str] = []
        self.trust = Trust("test", "n0", "", lambda line, *_: self.told.append(line))
        self.use()

    def use(self) -> None:
        """Start with the files as they are."""
        self.trust.of_clients = Certificates(self.files, wall=lambda: time.time() + self.passed_s)

    def date(self, name: str, begin_s: float, end_s: float = 30 * DAY_S) -> str:
        """Put another file in the place of one; times are from now on. Returns its first date."""
        now_s = time.time()
        self.authority.date(name, now_s + begin_s, now_s + end_s)
        at_s = now_s + (begin_s if begin_s > 0 else end_s)
        return time.strftime("%Y-%m-%dT%H:%M", time.gmtime(at_s))

    def doctor(self) -> dict[str, tuple[str, str]]:
        made = examine(
            *(FakeView(), config(**self.settings), OPEN, time.time()), self.trust.refused_files()
        )
        return {one.name: (one.level, one.words) for one in made if one.level == ERROR}

    def check(self) -> list[Finding]:
        return [one for one in _certificates(config(**self.settings)) if one.weight != GOOD]


@pytest.fixture(params=SETTINGS)
def dated(request: pytest.FixtureRequest, tmp_path: Path) -> Dated:
    return Dated(tmp_path, request.param)


@pytest.mark.parametrize("name", ["n0", "ca"])
@pytest.mark.parametrize(
    ("begin_s", "end_s", "words"),
    [(DAY_S, 9 * DAY_S, "is not valid before"), (-9 * DAY_S, -DAY_S, "has expired at")],
)
def test_files_that_are_not_valid_now_replace_none_in_use(
    dated: Dated, name: str, begin_s: float, end_s: float, words: str
) -> None:
    """Every new client failed, and the log said that the files were read again."""
    first = dated.trust.of_clients.server if dated.trust.of_clients else None
    date = dated.date(name, begin_s, end_s)
    for _ in range(2):
        assert dated.trust.refresh() == []
    (line,) = dated.told
    fault = f"{dated.names[name]} = {dated.paths[name]!r} {words} {date}"
    assert line.startswith(f"the certificates that were read before stay in use: {fault}")
    assert dated.trust.of_clients and dated.trust.of_clients.server is first
    prefix = dated.files.setting
    assert dated.trust.refused_files() == {prefix: line}
    found = dated.doctor()
    assert found[f"{prefix}* files"] == (ERROR, line)
    level, told = found[dated.names[name]]
    assert level == ERROR and told.startswith(f"{dated.paths[name]} {words.partition(' at')[0]}")


@pytest.mark.parametrize("name", ["n0", "ca"])
def test_they_are_taken_by_the_first_look_after_they_have_begun(dated: Dated, name: str) -> None:
    """Those that a CA makes for some seconds later, or whose CA's clock is ahead."""
    for one in dated.paths:
        dated.date(one, -DAY_S)
    dated.use()
    dated.passed_s = -60.0
    dated.date(name, -5.0)
    for _ in range(2):
        assert dated.trust.refresh() == []
    dated.passed_s = 0.0
    read = f"{dated.files.setting}certificate_file and what belongs to it was read again"
    assert dated.trust.refresh() == [read] and dated.trust.refused_files() == {}
    assert len(dated.told) == 2 and dated.told[1] == read
    assert dated.trust.refresh() == [] and dated.doctor() == {}


def test_files_replace_others_that_are_not_valid_either(dated: Dated) -> None:
    """They cost nothing, and one that is not valid yet will be in time."""
    dated.date("n0", -9 * DAY_S, -DAY_S)
    dated.use()
    date = dated.date("n0", DAY_S)
    (line,) = dated.trust.refresh()
    path = dated.paths["n0"]
    assert f"again; {dated.names['n0']} = {path!r} is not valid before {date}" in line
    dated.passed_s = DAY_S + 60
    assert dated.trust.time_faults() == []


def test_one_valid_ca_of_several_is_enough(dated: Dated, tmp_path: Path) -> None:
    later = Authority(tmp_path / "later")
    later.date("ca", time.time() + DAY_S, time.time() + 9 * DAY_S)
    both = Path(dated.paths["ca"])
    both.write_text(Path(later.ca).read_text() + both.read_text())
    assert len(dated.trust.refresh()) == 1 and dated.trust.time_faults() == []
    assert dated.doctor() == {} and all("before" not in one.words for one in dated.check())


@pytest.mark.parametrize(
    ("begin_s", "end_s", "words"),
    [(DAY_S, 9 * DAY_S, "is not valid before"), (-9 * DAY_S, -DAY_S, "has expired ")],
)
def test_a_start_with_them_tells_it_as_check_does(
    dated: Dated, begin_s: float, end_s: float, words: str
) -> None:
    """A start goes on: clients may not look at the time, and the clock may be wrong."""
    weights = {"n0": checking.WARNING, "ca": checking.WRONG}
    for name in ("n0", "ca"):
        dated.date(name, begin_s, end_s)
    dated.use()
    lines: list[str] = []
    host: Any = SimpleNamespace(log=lambda line, *_: lines.append(line), trust=dated.trust)
    main._tell(config(**dated.settings), host)
    found = dated.check()
    assert len(found) == 2, "no handshake beside them"
    for (name, weight), one in zip(weights.items(), found, strict=True):
        fault = f"{dated.names[name]} = {dated.paths[name]!r} {words}"
        assert sum(line.startswith(fault) for line in lines) == 1
        assert one.weight == weight and f"{dated.names[name]}: {dated.paths[name]} " in one.words
        assert words in one.words
