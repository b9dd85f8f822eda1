"""Lists of revoked certificates that are not valid yet, or have expired: what they replace."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from beanpoled import checking, main
from beanpoled.trust.certificates import Certificates, Files
from beanpoled.trust.trust import Trust
from beanpoled.trust.validity import DAY_S
from tests.integration.support.authority import Authority
from tests.unit.node.stage import config

READ = "tls_certificate_file and what belongs to it was read again"


class Listed:
    """The files of a node, with a list whose times a test chooses, and the clock that judges them.

    Attributes:
        crl: the list.
    """

    def __init__(self, folder: Path, name: str = "") -> None:
        folder.mkdir(exist_ok=True)
        self._authority = Authority(folder / "ca", name)
        certificate, key = self._authority.make("n0")
        self.crl = str(folder / "crl.pem")
        self._files = Files("tls_", certificate, key, self._authority.ca, self.crl)
        self.settings = {
            "tls_certificate_file": certificate,
            "tls_key_file": key,
            "tls_client_ca_file": self._authority.ca,
            "tls_crl_file": self.crl,
        }
        self.passed_s = 0.0

    def use(self) -> Certificates:
        """Start with the files as they are."""
        return Certificates(self._files, wall=lambda: time.time() + self.passed_s)

    def issue(self, begin_s: float, end_s: float) -> str:
        """Put a list with these times, from now on, in the place of the present one."""
        times = [
            time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + s)) for s in (begin_s, end_s)
        ]
        made = Path(self._authority.revoke(since=times[0], until=times[1]))
        Path(self.crl).write_bytes(made.read_bytes())
        return made.read_text()


@pytest.fixture
def listed(tmp_path: Path) -> Listed:
    found = Listed(tmp_path)
    found.issue(-2 * DAY_S, 9 * DAY_S)
    return found


@pytest.mark.parametrize(
    ("begin_s", "end_s", "words"),
    [
        (DAY_S, 9 * DAY_S, "is not valid before"),
        (-9 * DAY_S, -DAY_S, "has expired at"),
        (-2 * DAY_S - 60, -DAY_S, "has expired at"),
    ],
)
def test_a_list_that_refuses_all_replaces_no_valid_one(
    listed: Listed, begin_s: float, end_s: float, words: str
) -> None:
    """Each new client was refused, because of an old list, or a clock of the CA that is ahead."""
    used = listed.use()
    first = used.server
    listed.issue(begin_s, end_s)
    told = used.refresh()
    assert told is not None and told == used.refusal
    assert f"stay in use: tls_crl_file = {listed.crl!r} {words}" in told
    assert used.refresh() is None and used.server is first and used.standing is not None


def test_a_newer_list_is_taken_though_it_has_expired(listed: Listed) -> None:
    """It may revoke more than the one in use: no client is better than one that is revoked."""
    used = listed.use()
    listed.issue(-DAY_S, -60.0)
    told = used.refresh()
    assert told is not None and told.startswith(f"{READ}; tls_crl_file = ")
    assert "has expired at" in told and used.refusal == ""


def test_a_list_is_taken_as_soon_as_it_is_valid(listed: Listed) -> None:
    used = listed.use()
    listed.issue(60.0, 9 * DAY_S)
    assert used.refresh() == used.refusal != ""
    listed.passed_s = 61.0
    assert used.refresh() == READ and used.refusal == ""


def test_a_list_replaces_another_that_is_not_valid_either(listed: Listed) -> None:
    listed.issue(DAY_S, 9 * DAY_S)
    used = listed.use()
    listed.issue(-9 * DAY_S, -DAY_S)
    told = used.refresh()
    assert told is not None and told.startswith(READ) and used.refusal == ""


def test_lists_of_two_issuers_are_valid_while_both_are(listed: Listed, tmp_path: Path) -> None:
    own = Path(listed.crl).read_text()
    used = listed.use()
    other = Listed(tmp_path / "other", "another CA").issue(DAY_S, 9 * DAY_S)
    Path(listed.crl).write_text(own + other)
    assert "is not valid before" in (used.refresh() or "")


def test_a_list_is_newer_than_that_of_the_same_ca(listed: Listed, tmp_path: Path) -> None:
    """The dates of the other CA's list decided: revoked clients stayed in, or none got in."""
    other = Listed(tmp_path / "other", "another CA")
    file, own = Path(listed.crl), Path(listed.crl).read_text()
    beside = other.issue(-DAY_S, 9 * DAY_S)
    file.write_text(own + beside)
    used = listed.use()
    file.write_text(listed.issue(-DAY_S - 60, -60.0) + beside)
    assert (used.refresh() or "").startswith(READ), "newer, and expired"
    file.write_text(own + beside)
    assert used.refresh() == READ
    later = other.issue(-DAY_S / 2, 9 * DAY_S)
    file.write_text(listed.issue(-3 * DAY_S, -60.0) + later)
    assert "has expired at" in (used.refresh() or "") and used.refusal, "older, beside a newer one"


def test_a_start_and_check_name_a_list_that_is_not_valid_yet(listed: Listed) -> None:
    listed.issue(DAY_S, 9 * DAY_S)
    lines: list[str] = []
    trust = Trust("test", "n0", "", lambda *_: None)
    trust.of_clients = listed.use()
    host: Any = SimpleNamespace(log=lambda line, *_: lines.append(line), trust=trust)
    main._tell(config(**listed.settings), host)
    fault = f"{listed.crl!r} is not valid before"
    assert sum(fault in line for line in lines) == 1
    found = [one for one in checking._certificates(config(**listed.settings)) if "crl" in one.words]
    assert [one.weight for one in found] == [checking.WRONG]
    assert "is not valid before" in found[0].words
