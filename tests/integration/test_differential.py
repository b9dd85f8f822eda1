"""Beanpole and Debian's beanstalkd return the same bytes for the same command scripts.

Each test's id names the reference: the installed beanstalkd or, without one, the transcripts
recorded from it (`pytest tests/integration/test_differential.py --record` rewrites them). The
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
    """Return beanstalkd's replies: live if it is installed, else as recorded."""
    steps = read_script(script)
    transcript = script.with_suffix(".expected")
    if not INSTALLED:
        assert not recording, "recording needs an installed beanstalkd"
        return read_transcript(transcript, steps)
    server = Beanstalkd(directory)
    try:
        replies = play(server.address, steps)
    finally:
        server.close()
    if recording:
        transcript.write_text(format_transcript(steps, replies))
    # Otherwise only other machines would notice a changed script without a new recording.
    assert read_transcript(transcript, steps) == replies
    return replies


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.stem}-with-{AGAINST}")
def test_same_bytes(script: Path, singles: Singles, tmp_path: Path, recording: bool) -> None:
    expected = reference_replies(script, tmp_path, recording)
    if recording:
        return
    steps = read_script(script)
    node = singles.take()
    try:
        replies = play(node.nodes[0].beanstalk, steps)
    finally:
        node.close()
    wrong: list[str] = []
    for number, (step, theirs, ours) in enumerate(zip(steps, expected, replies, strict=True)):
        wanted = [reply for _, reply in step.deviations] or theirs
        if ours != wanted:
            wrong.append(f"{number}: {step.line!r}\n  wanted {wanted}\n  got    {ours}")
        if step.deviations and wanted == theirs:
            wrong.append(f"{number}: {step.line!r} is called a deviation, but is none")
    assert not wrong, "\n".join(wrong)


def test_every_deviation_has_a_reason() -> None:
    used = {
        name for script in SCRIPTS for step in read_script(script) for name, _ in step.deviations
    }
    assert used == set(read_deviations())
