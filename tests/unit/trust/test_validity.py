"""How long files of certificates, CAs and lists of revoked certificates are valid."""

import calendar
import math
from pathlib import Path

import pytest

from beanpole.client.expiry import all_expire_s, expires_s
from beanpoled.trust import revocations
from beanpoled.trust.validity import DAY_S, Validity, validities
from tests.integration.support.authority import Authority
from tests.unit.node.stage import config

NEW_YEAR_2020_S = float(calendar.timegm((2020, 1, 1, 0, 0, 0)))
NEW_YEAR_2021_S = float(calendar.timegm((2021, 1, 1, 0, 0, 0)))
NEW_YEAR_2060_S = float(calendar.timegm((2060, 1, 1, 0, 0, 0)))


def test_the_times_of_a_list(tmp_path: Path) -> None:
    """After 2049 a time has four digits of its year."""
    authority = Authority(tmp_path / "ca")
    authority.make("a")
    until = {"20210101000000Z": NEW_YEAR_2021_S, "20600101000000Z": NEW_YEAR_2060_S}
    texts = []
    for text, end_s in until.items():
        for names in ((), ("a",)):
            path = authority.revoke(*names, until=text)
            assert revocations.span(path) == (NEW_YEAR_2020_S, end_s)
            # A certificate is revoked once.
            (authority.place / "index").write_text("")
        texts.append(Path(path).read_text())
    both = tmp_path / "both.pem"
    both.write_text("".join(texts))
    assert revocations.span(str(both)).end_s == NEW_YEAR_2060_S, "OpenSSL takes the later one"


def test_a_list_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenSSL makes none; the entries are at the place of the end then."""
    names = [(0x30, b""), (0x30, b"issuer"), (0x17, b"200101000000Z"), (0x30, b"")]
    ended = [(0x30, b""), (0x30, b"other"), (0x17, b"200101000000Z"), (0x17, b"210101000000Z")]
    lists = {b"a": names, b"b": ended, b"c": names[:3]}
    monkeypatch.setattr(revocations, "signed", lambda raw, _tag: lists[raw])
    for given, end_s in (((b"a",), math.inf), ((b"c",), math.inf), ((b"a", b"b"), NEW_YEAR_2021_S)):
        monkeypatch.setattr(revocations, "_lists", lambda _path, given=given: given)
        assert revocations.span("") == (NEW_YEAR_2020_S, end_s)


def test_a_file_of_several_authorities(tmp_path: Path) -> None:
    """One that has ended beside others is no reason to refuse, and one to look."""
    soon = Path(Authority(tmp_path / "soon").make("a", days="10")[0])
    late = Path(Authority(tmp_path / "late").make("a", days="100")[0])
    both = tmp_path / "both.pem"
    both.write_text(f"some words\n{late.read_text()}between\n{soon.read_text()}")
    late_s, soon_s = all_expire_s(str(both))
    assert (late_s, soon_s) == (expires_s(str(late)), expires_s(str(soon)))

    def at(now_s: float) -> Validity:
        names = {"tls_certificate_file": "", "tls_client_ca_file": str(both)}
        (found,) = validities(config(**names), now_s, False)
        return found

    first = at(soon_s - 40 * DAY_S)
    assert (round(first.days), first.is_near) == (40, False)
    assert at(soon_s - DAY_S).is_near and not at(soon_s - DAY_S).some_ended
    assert at(soon_s + DAY_S).words == "has a certificate that has expired, beside valid ones"
    assert at(soon_s + DAY_S).is_near and at(soon_s + DAY_S).days > 0
    assert at(late_s + DAY_S).words == "has expired 1 days ago"
    both.write_text(both.read_text().replace("BEGIN CERTIFICATE", "BEGIN NOTHING"))
    assert at(late_s).broken == "cannot be read: it is no certificate in PEM"
