"""Reduce an error of Spark, Java or Python to one line, and classify its cause.

Spark's errors fill a page; their whole text goes to the log (see `sparklog`). This module only maps
text to an error: nothing is printed here, and the exit status follows from the error's class.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from beanpole.client.events import BegunAnew, Behind, EventsLost, OtherCluster
from beanpole.errors import BeanpoleError, ClientError, ConfigurationError

# The most characters of one line that are shown.
WORDS_MAX: Final = 500

# An error of ours, of Python and of Java, as other text quotes it. Java's comes after the words
# about the failed task.
_OURS: Final = re.compile(r"\bbeanpole\.(?:\w+\.)+(\w+): (.+)$", re.MULTILINE)
_PYTHON: Final = re.compile(r"Traceback .*\n(?:[ |].*\n|\n)+(\w\S*(?:: .*)?)$", re.MULTILINE)
_CAUSE: Final = re.compile(r"^Caused by: (?:[\w$]+\.)+(\w+(?:: .*)?)$", re.MULTILINE)
_TASK: Final = re.compile(r"most recent failure: .*?\): (?:[\w$]+\.)*(\w+(?:: .*)?)$", re.MULTILINE)
_CALL: Final = re.compile(r"^An error occurred while calling \S+\n?: (?:[\w$]+\.)*", re.MULTILINE)
# Messages of a Java that rejects its options.
_OPTIONS: Final = re.compile(
    r"^(?:Error: )?((?:Unrecognized|Invalid|Improperly specified|Conflicting|Missing|Could not find"
    r" or load|Initial heap size|Unable to open|agent library failed).*)$",
    re.MULTILINE,
)
_MASTER: Final = re.compile(
    r"(?:Could not parse Master URL|Master must either be|Invalid master URL).*"
)
_WRONG: Final = ("IllegalArgumentException", "NumberFormatException", "INVALID_CONF")
_OF_NODES: Final = tuple(one.__name__ for one in (ClientError, OtherCluster, BegunAnew, Behind))
# Spark does not find a file, when it plans to read it or when it reads it.
_LOST_FILE: Final = ("[PATH_NOT_FOUND]", "[FAILED_READ_FILE.FILE_NOT_EXIST]")
_MEMORY: Final = re.compile(r"java\.lang\.OutOfMemoryError.*|.*insufficient memory.*")


def gist(text: str) -> str:
    """Return the cause that an error's text names (ours, Python's, Java's), or its first line."""
    for pattern, group in ((_OURS, 2), (_PYTHON, 1), (_TASK, 1), (_CAUSE, 1)):
        found = pattern.findall(text)
        if found:
            last = found[-1]
            return _short(last[group - 1] if isinstance(last, tuple) else last)
    return _short(_CALL.sub("", text.strip()).partition("\n")[0])


def from_spark(text: str, conf: Iterable[str]) -> BeanpoleError:
    """Return our error that corresponds to an error of Spark.

    Args:
        text: the whole text of Spark's error.
        conf: the names of the settings that the user gave.
    """
    ours = _OURS.findall(text)
    words = gist(text)
    if ours:
        return (ConfigurationError if ours[-1][0] == "ConfigurationError" else ClientError)(words)
    if master := _MASTER.search(text):
        return ConfigurationError(f"--master: {master[0]}")
    if memory := _MEMORY.search(text):
        return ClientError(_short(memory[0]))
    named = next((name for name in conf if name in text), None)
    if named is not None and any(word in text for word in _WRONG):
        return ConfigurationError(f"--conf {named}: {words}")
    return ClientError(words)


def is_of_nodes(text: str) -> bool:
    """Whether an error of Spark says that nodes did not answer a task."""
    ours = _OURS.findall(text)
    return bool(ours) and ours[-1][0] in _OF_NODES


def is_of_lost_events(text: str) -> bool:
    """Whether an error of Spark says that no node keeps the events of a task any more."""
    ours = _OURS.findall(text)
    return bool(ours) and ours[-1][0] == EventsLost.__name__


def is_of_lost_file(text: str) -> bool:
    """Whether an error of Spark says that a file which was there is not there any more."""
    return any(name in text for name in _LOST_FILE)


def java_never_ran(lines: Sequence[str]) -> BeanpoleError:
    """Return the error for a Java that ended before Spark ran in it, from its last lines."""
    text = "\n".join(lines)
    if master := _MASTER.search(text):
        return ConfigurationError(f"--master: {master[0]}")
    if options := _OPTIONS.search(text):
        return ConfigurationError(f"Java does not start: {_short(options[1])}")
    if memory := _MEMORY.search(text):
        return ClientError(f"Java does not start: {_short(memory[0])}")
    said = [line for line in lines if re.search(r"[Ee]rror|[Ee]xception", line)] or lines
    return ClientError(f"Java does not start: {_short(said[0]) if said else 'it says nothing'}")


def java_ended(status: int, lines: Sequence[str]) -> BeanpoleError:
    """Return the error for a Java that ended while Spark ran in it.

    Args:
        status: its exit status; negative for a signal's number.
        lines: its last lines of output.
    """
    how = f"by signal {-status}" if status < 0 else f"with status {status}"
    memory = _MEMORY.search("\n".join(lines))
    reason = f": {_short(memory[0])}" if memory else ""
    return ClientError(f"Java ended in the middle of the work, {how}{reason}")


def _short(words: str) -> str:
    words = words.strip()
    return words if len(words) <= WORDS_MAX else f"{words[:WORDS_MAX]} ..."
