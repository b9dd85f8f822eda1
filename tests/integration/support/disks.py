"""The standing of a node's disk, read from its data directory."""

from pathlib import Path

from beanpole.storage.files import InlineFiles
from beanpoled.disk import identity


def standing(data: Path) -> str:
    """Return `founding`, `voter` or `rejoining`; empty if the directory does not say."""
    found = identity.read(InlineFiles(), str(data))
    return "" if found is None else found.standing
