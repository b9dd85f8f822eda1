"""Names and external ids as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanpole import events as e
from beanpole.core.jobs import display_names
from beanpole.core.jobs.spaces import SPACES
from tests.unit.core.foreign import LEASED, NOBODY, add_spaces


@pytest.fixture(autouse=True)
def spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in set(SPACES) - {e.BEANSTALK}:
        monkeypatch.delitem(SPACES, number)
    add_spaces(monkeypatch)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (b"mail", "mail"),
        (b"\x11q", f"foreign{LEASED}:q"),
        (b"\x12", f"foreign{NOBODY}:"),
        (b"\x12a:b", f"foreign{NOBODY}:a:b"),
        (b"\x11\xff\xc3\xa4", f"foreign{LEASED}:\\xffä"),
        (b"\x11\\xffq\\\xff", f"foreign{LEASED}:\\\\xffq\\\\\\xff"),
        (b"\x11App\\Jobs\\xml", f"foreign{LEASED}:App\\Jobs\\xml"),
        (b"\x1eq", "\x1eq"),  # of an unknown space
        (b"", ""),
    ],
)
def test_the_name_of_a_queue_says_its_space(name: bytes, text: str) -> None:
    assert display_names.queue(name) == text


@given(st.sampled_from([b"", b"\x11", b"\x12"]), st.text("ab:-\x1fä", min_size=1, max_size=9))
def test_a_text_is_the_name_that_it_was_made_of(prefix: bytes, text: str) -> None:
    name = prefix + text.encode()
    if prefix or (":" not in text and name[0] >= 0x20):
        assert display_names.parsed(display_names.queue(name)) == name


@given(st.binary() | st.text("\\xf80\udcffä").map(lambda one: one.encode(errors="surrogateescape")))
def test_any_bytes_have_a_text_of_their_own(name: bytes) -> None:
    assert display_names.bytes_of(display_names.text(name)) == name
    display_names.text(name).encode()


@pytest.mark.parametrize("text", ["", "no:q", "\x11q", "x" * 201, f"foreign{NOBODY}:{'x' * 21}"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        display_names.parsed(text)


@pytest.mark.parametrize(
    ("space", "value", "text"),
    [
        (e.WORKQ, bytes(range(240, 256)), "f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff"),
        (e.WORKQ, b"15 bytes, not 16"[:15], "15 bytes, not 1"),
        (e.GEARMAN, b"resize\0u:1", "u:1"),
        (e.GEARMAN, b"resize\0\xff", "\\xff"),
        (e.GEARMAN, b"resize\0\0" + bytes(32), "-"),
        (LEASED, b"any\0\xe4", "any\0\\xe4"),
    ],
)
def test_an_external_id_is_what_its_client_gave(space: int, value: bytes, text: str) -> None:
    assert display_names.external_id(space, value) == text
