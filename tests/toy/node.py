"""A node that also speaks the toy protocol: `python -m tests.toy.node --config FILE`.

It is `beanpoled` with one more row in each table. Nothing of the daemon knows that it is tested.
"""

import argparse
import os
import sys

import uvloop

from beanpole.errors import BeanpoleError
from beanpoled.config import node as configuration
from beanpoled.config.protocols import PROTOCOLS
from beanpoled.frontends.table import FRONTENDS
from beanpoled.host.log import LogLines
from beanpoled.main import prepare_process, run
from tests.toy.frontend import ROW, ToyFrontend
from tests.toy.space import registered

TABLE = {**FRONTENDS, ROW.name: ToyFrontend}


def main() -> None:
    """Run the node."""
    parser = argparse.ArgumentParser()
    configuration.add_flags(parser)
    arguments = parser.parse_args()
    config = configuration.from_arguments(arguments, os.environ, (*PROTOCOLS, ROW))
    try:
        with registered():
            uvloop.run(run(prepare_process(config, LogLines(config)), TABLE))
    except (BeanpoleError, OSError) as error:
        sys.exit(f"node: {error}")


if __name__ == "__main__":
    main()
