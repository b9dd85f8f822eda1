"""The command `beanpoled`: what must be done before the modules of the daemon are loaded.

Their import takes a second, in which a SIGHUP of a supervisor would end the node without a line.
"""

from beanpoled import first_process


def main() -> None:
    """Run `beanpoled`."""
    first_process.ignore()
    from beanpoled.main import main as run

    run()
