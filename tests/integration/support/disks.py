"""What the data directory of a node says that its disk is."""

from pathlib import Path

from beanpole.storage.files import InlineFiles
from beanpoled.disk import identity


def standing(data: Path) -> str:
    """Return `founding`, `voter` or `rejoining`; nothing if the directory does not say."""
    found = identity.read(InlineFiles(), str(data))
    return "" if found is None else found.standing
