"""Make the commands of the synchronous client from those of the asyncio client.

The two differ in the words `async` and `await`, and in the connection.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from beanpole.client import aio_commands

HEAD: Final = '''"""The commands of the synchronous client. `blocking` has its connection.

`make references` writes this file from `aio_commands`: change them there.
"""
'''
# Each occurs at least once.
CHANGES: Final = (
    (r'\A""".*?"""\n', HEAD),
    (r"\basync def ", "def "),
    (r"\bawait ", ""),
    (r"  # noqa: ASYNC109.*?$", ""),
    (r"\baio_wire\b", "blocking_wire"),
    (r"\bAioCommands\b", "BlockingCommands"),
)


def module() -> str:
    """Return the source of `beanpole.client.blocking_commands`."""
    text = Path(aio_commands.__file__).read_text()
    for pattern, words in CHANGES:
        text, count = re.subn(pattern, words, text, flags=re.DOTALL | re.MULTILINE)
        assert count, f"{pattern} is not in {aio_commands.__file__}"
    arguments = ["format", "--isolated", "--line-length=100", "-"]
    command = [sys.executable, "-m", "ruff", *arguments]
    return subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout
