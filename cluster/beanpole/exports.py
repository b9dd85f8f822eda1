"""The format of an export directory: file names, the manifest, and the check against a listing.

    DIR/_manifest.json                                     the files that count, with checksums
    DIR/date=YYYY-MM-DD/events-<first>-<end>.parquet       events first <= offset < end

Belongs here: names, the manifest as text and as values, and the comparison of a manifest with a
listing. Does no I/O: files are in `exporting`, file systems in `places`.
"""

import json
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from beanpole.errors import BeanpoleError, ConfigurationError
from beanpole.events import PROTOCOL_NAMES, QLESS

MANIFEST: Final = "_manifest.json"
VERSION: Final = 2
# The version that release 0.3.0 writes: without a list of files, which count by their names.
VERSION_WITHOUT_FILES: Final = 1
STATES: Final = ("ready", "reserved", "delayed", "buried")
# The prefix of qless queues. A cluster does not count their jobs by STATES, because they have more
# states.
UNCOUNTED: Final = f"{PROTOCOL_NAMES[QLESS]}:"

# A file of about 50 MB: smaller files cost a reader one task each, larger ones result in too few
# tasks.
FILE_ROWS_MAX: Final = 2_000_000
# Offsets are unsigned 64-bit numbers; those of Arrow and Spark are signed.
OFFSET_MAX: Final = 2**63 - 1

# Keys of a Parquet file's metadata: JSON {tube: {state: change}}, and the name of the cluster.
CHANGES_KEY: Final = b"beanpole.changes"
CLUSTER_KEY: Final = b"beanpole.cluster"

_NAME: Final = re.compile(
    r"date=([0-9]{4}-[0-9]{2}-[0-9]{2})/events-([0-9]{20})-([0-9]{20})\.parquet"
)
_WRITER: Final = "`beanpole events export`"

Span = tuple[int, int]


class BadExport(BeanpoleError):
    """An export lacks events or has a corrupt file, which the message names."""


class File(NamedTuple):
    """One file of events, first <= offset < end. `name` is relative to the directory."""

    name: str
    first: int
    end: int
    # None if unknown: version 1 stores neither. The checksum is the CRC-32C of the whole file.
    bytes: int | None = None
    checksum: int | None = None

    @property
    def date(self) -> str:
        """The date of the wall times of its events, YYYY-MM-DD in UTC."""
        return self.name[len("date=") :].partition("/")[0]

    @property
    def rows(self) -> int:
        """The number of its events."""
        return self.end - self.first


class Owner(NamedTuple):
    """The process that writes to a directory on a file system without locks."""

    id: str
    host: str
    # The Unix time at which it last renewed its ownership, by its own clock and for itself alone.
    at_s: int


class Manifest(NamedTuple):
    """The files and events that count in a directory."""

    cluster: str
    # The number of jobs in each state before the first event.
    jobs_before: Mapping[str, int]
    # In the order of offsets; empty in version 1, see `compared`.
    files: tuple[File, ...] = ()
    # The existing ranges of offsets, in order and with gaps between them.
    spans: tuple[Span, ...] = ()
    # The names of files that may exist but do not count, because a compaction is writing or has
    # replaced them, with the Unix time from which on they may be removed.
    uncounted: Mapping[str, int] = {}
    owner: Owner | None = None
    # Where the directory begins, so that it is known before the first file; None: unknown.
    begin: int | None = None
    # The birth id of the cluster; empty if no node has told it yet.
    birth: str = ""
    version: int = VERSION

    @property
    def end(self) -> int:
        """The offset after the last event; 0 if there are no events."""
        return self.spans[-1][1] if self.spans else 0

    def with_files(self, files: Iterable[File]) -> "Manifest":
        """Return the manifest with these files, which may be in any order.

        Raises:
            BadExport: two files have an event in common.
        """
        ordered = tuple(sorted(files, key=lambda file: file.first))
        for low, high in pairwise(ordered):
            if high.first < low.end:
                raise BadExport(
                    f"{high.name} has the events {high.first} to {min(low.end, high.end)} of "
                    f"{low.name} again"
                )
        return self._replace(files=ordered, spans=joined((one.first, one.end) for one in ordered))


class Problem(NamedTuple):
    """A problem of a directory, and the events that are lost by it."""

    words: str
    lost: Span | None = None
    # Whether it is a file with events that another file has.
    is_twice: bool = False


class Compared(NamedTuple):
    """The result of comparing a manifest with a listing."""

    # The files that count and exist with the right sizes, in the order of offsets.
    files: tuple[File, ...]
    problems: tuple[Problem, ...]
    # Files after the manifest's end: the exporter renames a file before it lists it.
    coming: tuple[File, ...]


def file_name(date: str, first: int, end: int) -> str:
    """Return the name of the file with these events, relative to the directory."""
    return f"date={date}/events-{first:020d}-{end:020d}.parquet"


def named(name: str) -> File | None:
    """Parse the name of a file of events; return None if it is not such a name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    first, end = int(match[2]), int(match[3])
    return File(name, first, end) if first < end <= OFFSET_MAX else None


def hidden(name: str) -> bool:
    """Whether Spark and this program skip a name: a part of it begins with "_" or "."."""
    return any(part.startswith(("_", ".")) for part in name.split("/"))


def joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return ranges in order, with adjacent and overlapping ones joined."""
    found: list[Span] = []
    for first, end in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((first, end))
    return tuple(found)


def holes(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return the gaps between ordered ranges."""
    return tuple((low[1], high[0]) for low, high in pairwise(spans))


# --- the manifest as text -------------------------------------------------------------------------


def written(manifest: Manifest) -> str:
    """Return the text of a manifest, always in the newest version."""
    body = _body(manifest)
    return json.dumps({**body, "checksum": _checksum(body)}) + "\n"


def _body(manifest: Manifest) -> dict[str, Any]:
    body: dict[str, Any] = {
        "version": VERSION,
        "cluster": manifest.cluster,
        "spans": [list(span) for span in manifest.spans],
        "jobs_before": dict(manifest.jobs_before),
        "files": [file._asdict() for file in manifest.files],
    }
    if manifest.uncounted:
        body["uncounted"] = dict(manifest.uncounted)
    if manifest.owner is not None:
        body["owner"] = manifest.owner._asdict()
    if manifest.begin is not None:
        body["begin"] = manifest.begin
    if manifest.birth:
        body["birth"] = manifest.birth
    return body


def _checksum(body: Mapping[str, Any]) -> int:
    """Return the CRC-32C of the rest of a manifest, independent of the spacing of its JSON."""
    return int(crc32c(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()))


def parsed(text: str | bytes, place: str) -> Manifest:
    """Parse a manifest.

    Args:
        text: the content of the file.
        place: the name of the file, for messages.

    Raises:
        ConfigurationError: it is not a manifest, or has an unknown version.
    """
    try:
        found: Any = json.loads(text)
        version = found["version"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ConfigurationError(f"{place} is not what {_WRITER} wrote: {error!r}") from None
    # In Python True is 1, and so is 1.0.
    if type(version) is not int or version not in (VERSION_WITHOUT_FILES, VERSION):
        raise ConfigurationError(
            f"{place} is of version {version!r:.40}; this program knows "
            f"{VERSION_WITHOUT_FILES} and {VERSION}"
        )
    try:
        return _of_version_1(found) if version == VERSION_WITHOUT_FILES else _of_version_2(found)
    except (ValueError, TypeError, KeyError, BadExport) as error:
        words = str(error) if isinstance(error, BadExport) else repr(error)
        raise ConfigurationError(f"{place} is not what {_WRITER} wrote: {words}") from None


def _of_version_1(found: dict[str, Any]) -> Manifest:
    spans = tuple((_number(first), _number(end)) for first, end in found["spans"])
    if any(first >= end for first, end in spans) or joined(spans) != spans:
        raise ValueError("its spans are not in order")
    return Manifest(_text(found["cluster"]), _jobs(found["jobs_before"]), spans=spans, version=1)


def _of_version_2(found: dict[str, Any]) -> Manifest:
    body = {key: value for key, value in found.items() if key != "checksum"}
    if found["checksum"] != _checksum(body):
        raise ValueError("its checksum is wrong")
    files = [
        File(
            _text(one["name"]),
            *(_number(one[key]) for key in ("first", "end", "bytes", "checksum")),
        )
        for one in found["files"]
    ]
    for file in files:
        expected = named(file.name)
        if expected is None or expected[:3] != file[:3]:
            raise ValueError(f"{file.name!r} is not the name of a file of events")
    owner, begin = found.get("owner"), found.get("begin")
    manifest = Manifest(
        _text(found["cluster"]),
        _jobs(found["jobs_before"]),
        uncounted={
            _file_name(name): _number(at) for name, at in dict(found.get("uncounted", {})).items()
        },
        owner=owner and Owner(_text(owner["id"]), _text(owner["host"]), _number(owner["at_s"])),
        begin=None if begin is None else _number(begin),
        birth=_text(found.get("birth", "")),
    ).with_files(files)
    if [list(span) for span in manifest.spans] != found["spans"]:
        raise ValueError("its files do not make its spans")
    return manifest


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= OFFSET_MAX:
        raise ValueError(f"{value!r} is not a whole number from 0 on")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")
    return value


def _file_name(value: Any) -> str:
    """Check a name whose file is removed: nothing outside of the directory may be."""
    if named(_text(value)) is None:
        raise ValueError(f"{value!r} is not the name of a file of events")
    return str(value)


def _jobs(value: Any) -> dict[str, int]:
    return {_text(state): _number(count) for state, count in dict(value).items()}


# --- comparison of a manifest with the files ------------------------------------------------------


def compared(manifest: Manifest, listed: Mapping[str, int], place: str) -> Compared:
    """Compare a manifest with the existing files.

    Args:
        manifest: the files that count.
        listed: the sizes in bytes of all existing files, by names relative to the directory.
        place: the directory, for messages.
    """
    shown = {name for name in listed if not hidden(name) and name not in manifest.uncounted}
    strange = [
        Problem(f"{place}/{name} is not a file of this export")
        for name in sorted(shown)
        if named(name) is None
    ]
    known = sorted(filter(None, map(named, shown)), key=lambda one: (one.first, one.end, one.name))
    coming = [one for one in known if one.first >= manifest.end]
    inside = [one for one in known if one.first < manifest.end]
    check = _by_names if manifest.version == VERSION_WITHOUT_FILES else _by_list
    files, problems = check(manifest, inside, listed, place)
    return Compared(tuple(files), (*problems, *strange), tuple(coming))


def _by_list(
    manifest: Manifest, inside: list[File], listed: Mapping[str, int], place: str
) -> tuple[list[File], list[Problem]]:
    files: list[File] = []
    problems: list[Problem] = []
    for file in manifest.files:
        size = listed.get(file.name)
        lost = (file.first, file.end)
        if size is None:
            problems.append(Problem(f"{place}/{file.name} is not there", lost))
        elif size != file.bytes:
            words = f"{place}/{file.name} has {size} bytes and was written with {file.bytes}"
            problems.append(Problem(words, lost))
        else:
            files.append(file)
    counted = {file.name for file in manifest.files}
    again = [one for one in inside if one.name not in counted]
    return files, problems + [_again(place, one, manifest.files) for one in again]


def _by_names(
    manifest: Manifest, inside: list[File], listed: Mapping[str, int], place: str
) -> tuple[list[File], list[Problem]]:
    """Compare by names: in version 1 the files count whose names fit the spans."""
    files: list[File] = []
    problems = []
    for one in inside:
        fits = any(first <= one.first and one.end <= end for first, end in manifest.spans)
        if not fits or (files and one.first < files[-1].end):
            problems.append(_again(place, one, files))
        else:
            files.append(one._replace(bytes=listed[one.name]))
    for first, end in _lacking(manifest.spans, files):
        words = f"{place} has no file with the events {first} to {end - 1}"
        problems.append(Problem(words, (first, end)))
    return files, problems


def _again(place: str, file: File, others: Iterable[File]) -> Problem:
    for other in others:
        if file.first < other.end and other.first < file.end:
            words = f"{place}/{file.name} has events of {other.name} again"
            return Problem(words, is_twice=True)
    words = f"{place}/{file.name} is not a file of this export: its manifest does not list it"
    return Problem(words)


def _lacking(spans: Iterable[Span], files: Iterable[File]) -> list[Span]:
    """Return the parts of the spans that no file has."""
    there = joined((file.first, file.end) for file in files)
    lacking: list[Span] = []
    for first, end in spans:
        position = first
        for low, high in there:
            if first <= low < end:
                if position < low:
                    lacking.append((position, low))
                position = high
        if position < end:
            lacking.append((position, end))
    return lacking
