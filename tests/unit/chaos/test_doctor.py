"""`python -m chaos.doctor` reports for each backend whether it works here."""

import pytest

from chaos import doctor


@pytest.mark.slow  # one backend builds and mounts a file system to find out
def test_every_way_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:20].strip() for line in lines] == [name for name, _, _ in doctor.WAYS]
    for line, (_, command, _) in zip(lines, doctor.WAYS, strict=True):
        assert command in line and len(line) > 48


def test_a_double_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOXIPROXY_URL", "http://127.0.0.1:8474")
    assert doctor.toxiproxy() == ""
    monkeypatch.delenv("TOXIPROXY_URL")
    monkeypatch.setenv("PATH", "/nowhere")
    assert "our double" in doctor.toxiproxy() and "strace" in doctor.processes()
