"""The ways in which a node's process ends: its log has the reason, or takes no line at all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.unread import full_pipe

TIMEOUT_S = 60.0
# A node that ends in the given way while its loop would run.
SCRIPT = """
import asyncio, os, signal, sys, warnings
from functools import partial
from beanpole.errors import ConfigurationError
from beanpoled import main
from beanpoled.host.aio import AioHost

def fail(error):
    raise error

async def in_loop(node, end):
    loop = asyncio.get_running_loop()
    end(AioHost(node["config"], loop, node["lines"]), loop)

def bug(host, loop):
    loop.set_exception_handler(partial(main._stop_on_bug, lines=host.lines))
    context = {"exception": ValueError("the bug"), "message": "Exception in callback"}
    loop.call_exception_handler(context)

def stop(host, loop):
    host.exit(words="the last words")
    host.close_files()

WAYS = {
    "early": lambda node: os.kill(os.getpid(), signal.SIGTERM),
    "misconfigured": lambda node: fail(ConfigurationError("the mistake")),
    "failed": lambda node: fail(OSError("the failure")),
    "defect": lambda node: fail(ValueError("the defect")),
    "fatal": lambda node: asyncio.run(in_loop(node, lambda host, _: host.fatal("the reason"))),
    "bug": lambda node: asyncio.run(in_loop(node, bug)),
    "hang": lambda node: asyncio.run(in_loop(node, lambda host, _: host._give_up_disk())),
    "warning": lambda _: warnings.warn("the warning", RuntimeWarning),
    "stop": lambda node: asyncio.run(in_loop(node, stop)),
}

def end(node):
    arguments = dict(node.cr_frame.f_locals)
    node.close()
    WAYS[os.environ["WAY"]](arguments)

main.uvloop.run = end
main.main()
"""
# Of each way: the exit status, and the end of the log.
ENDS = {
    "early": (0, " a stopped before its disk was read\n"),
    "misconfigured": (78, " a fatal: the mistake\n"),
    "failed": (1, " a fatal: the failure\n"),
    "defect": (1, "\nValueError: the defect\n"),
    "fatal": (1, " a fatal: the reason\n"),
    "bug": (1, "\nValueError: the bug\n"),
    "hang": (1, " a fatal: stopped without a last sync, because the disk hangs\n"),
    "warning": (0, "RuntimeWarning: the warning\n"),
    "stop": (0, " a the last words\n"),
}


def ended(way: str, tmp_path: Path, errors: int) -> tuple[int, str]:
    """Run a node that ends in this way; return its status and, from a pipe, its log."""
    words = "--cluster dev --node-id a --members a=127.0.0.1:1/127.0.0.1:2 "
    words += "--peer-listen 127.0.0.1:1 --grpc-listen 127.0.0.1:2 --http-listen 127.0.0.1:3"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words.split(), "--data-dir", str(tmp_path)],
        env={**os.environ, "WAY": way},
        stdout=subprocess.DEVNULL,
        stderr=errors,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("way", ENDS)
def test_the_log_has_the_reason_of_each_end(way: str, tmp_path: Path) -> None:
    status, said = ended(way, tmp_path, subprocess.PIPE)
    assert status == ENDS[way][0] and said.endswith(ENDS[way][1]), said


@pytest.mark.slow
@pytest.mark.parametrize("way", ENDS)
def test_no_end_waits_for_a_log_that_takes_nothing(way: str, tmp_path: Path) -> None:
    """The process stayed until its pipe was read, or for ever."""
    read, write = full_pipe()
    try:
        os.set_blocking(write, True)
        assert ended(way, tmp_path, write)[0] == ENDS[way][0]
    finally:
        os.close(read)
        os.close(write)
