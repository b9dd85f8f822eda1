"""A node of a next release: `python next_release.py ARGUMENTS-OF-BEANPOLED`.

The daemon itself has no switch for this: its main is run in a process whose program knows one
machine version more. That version changes nothing; which one is active is all that can be seen.
"""

from typing import Final

from beanpole import commands

KNOWS: Final = commands.BASE_VERSION + 1


def run() -> None:
    """Run a node with the arguments of the command line."""
    vars(commands)["MACHINE_VERSION"] = KNOWS
    # Only now: the parts of a node take the version when they are imported.
    from beanpoled import main

    main.main()


if __name__ == "__main__":
    run()
