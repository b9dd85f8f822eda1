"""Beanpole and Debian's beanstalkd return the same bytes for the same command scripts.

The replies are compared with transcripts recorded from beanstalkd (`pytest
tests/integration/test_differential.py --record` rewrites them). Each test's id names the reference:
the installed beanstalkd, which has to give its transcript again, or without one the transcript. The
scripts are tests/scripts/*.txt. They mark every deviation with the reply of Beanpole, and
tests/scripts/deviations.txt has the reasons.
"""

from pathlib import Path

import pytest

from tests.integration.support.queues import Singles
from tests.integration.support.reference import Beanstalkd, beanstalkd_path
from tests.integration.support.scripts import (
    DEVIATIONS,
    FOLDER,
    format_transcript,
    is_same,
    play,
    read_deviations,
    read_script,
    read_transcript,
)

SCRIPTS = sorted(path for path in FOLDER.glob("*.txt") if path != DEVIATIONS)
INSTALLED = beanstalkd_path() is not None
AGAINST = "the-installed-beanstalkd" if INSTALLED else "committed-transcripts"


@pytest.fixture(scope="module")
def recording(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--record", default=False))


def reference_replies(script: Path, directory: Path, recording: bool) -> list[list[bytes]]:
    """Return beanstalkd's replies as recorded; an installed one has to give them again."""
    steps = read_script(script)
    transcript = script.with_suffix(".expected")
    if not INSTALLED:
        assert not recording, "recording needs an installed beanstalkd"
        return read_transcript(transcript, steps)
    server = Beanstalkd(directory)
    try:
        replies, late_s = play(server.address, steps)
    finally:
        server.close()
    if recording:
        transcript.write_text(format_transcript(steps, replies))
    # Otherwise only other machines would notice a changed script without a new recording.
    recorded = read_transcript(transcript, steps)
    wrong = [
        f"{number}: {step.line!r}\n  recorded {then}\n  now      {now}"
        for number, (step, then, now, late) in enumerate(
            zip(steps, recorded, replies, late_s, strict=True)
        )
        if not are_same(then, now, late)
    ]
    assert not wrong, "\n".join(wrong)
    return recorded


def are_same(theirs: list[bytes], ours: list[bytes], late_s: int) -> bool:
    """Whether the replies of one step are equal, but for the seconds by which ours were late."""
    return len(theirs) == len(ours) and all(
        is_same(one, other, late_s) for one, other in zip(theirs, ours, strict=True)
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.stem}-with-{AGAINST}")
def test_same_bytes(script: Path, singles: Singles, tmp_path: Path, recording: bool) -> None:
    expected = reference_replies(script, tmp_path, recording)
    if recording:
        return
    steps = read_script(script)
    node = singles.take()
    try:
        replies, late_s = play(node.nodes[0].beanstalk, steps)
    finally:
        node.close()
    wrong: list[str] = []
    played = zip(steps, expected, replies, late_s, strict=True)
    for number, (step, theirs, ours, late) in enumerate(played):
        wanted = [reply for _, reply in step.deviations] or theirs
        if not are_same(wanted, ours, late):
            wrong.append(f"{number}: {step.line!r}\n  wanted {wanted}\n  got    {ours}")
        if step.deviations and wanted == theirs:
            wrong.append(f"{number}: {step.line!r} is called a deviation, but is none")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("ours", "late_s", "wanted"),
    [
        (b"id: 1\nage: 0\ntime-left: 59\n", 0, True),
        (b"id: 1\nage: 1\ntime-left: 58\n", 1, True),
        (b"id: 1\nage: 0\ntime-left: 58\n", 0, False),
        (b"id: 1\nage: 2\ntime-left: 58\n", 1, False),
        (b"id: 1\nage: 0\ntime-left: 60\n", 9, False),
        (b"id: 2\nage: 0\ntime-left: 59\n", 9, False),
        (b"id: 1\nage: 0\ntime-left: 59\n\n", 9, False),
        (b"id: 1\nage: 0\npause-time-left: 59\n", 9, False),
    ],
)
def test_a_late_play_differs_by_the_seconds_that_passed(
    ours: bytes, late_s: int, wanted: bool
) -> None:
    assert is_same(b"id: 1\nage: 0\ntime-left: 59\n", ours, late_s) is wanted


def test_every_deviation_has_a_reason() -> None:
    used = {
        name for script in SCRIPTS for step in read_script(script) for name, _ in step.deviations
    }
    assert used == set(read_deviations())
