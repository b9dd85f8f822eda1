"""The transcripts match the replies of the source packages' programs on the installed Redis.

`pytest tests/qless/test_redis.py --record-redis` rewrites the replies. The replies of the dialects
whose packages run on no current Redis or Python (seed, core) were recorded once.
"""

import contextlib
from pathlib import Path

import pytest

from tests.integration.support.qless_scripts import (
    SCRIPTS,
    Player,
    read_script,
    write_replies,
)
from tests.qless.theirs import Redis, builds

RECORDED = [path for path in SCRIPTS if path.stem.partition("-")[0] in ("unified", "throttles")]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_the_transcript_is_what_redis_says(
    path: Path, redis: Redis, request: pytest.FixtureRequest
) -> None:
    script = read_script(path)
    build = builds()[script.dialect]
    with contextlib.closing(Player(redis.address, redis.address, script.dialect, build)) as player:
        replies = [player.play(step) for step in script.steps]
        messages = player.messages(len(script.messages))
    if request.config.getoption("--record-redis", default=False):
        write_replies(path, replies, messages)
        script = read_script(path)
    assert replies == [step.reply for step in script.steps]
    assert messages == list(script.messages)
