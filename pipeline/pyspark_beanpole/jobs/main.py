"""The entry point for spark-submit: `beanpole pipeline` with the arguments after this file.

It has a folder of its own because Python also searches the folder of its script for modules.
"""

import sys

from pyspark_beanpole.cli import main

if __name__ == "__main__":
    sys.exit(main())
