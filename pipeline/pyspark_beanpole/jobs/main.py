"""What spark-submit runs: `beanpole pipeline` with the arguments behind this file.

It stands in a folder of its own because Python looks for modules beside the file that it runs.
"""

import sys

from pyspark_beanpole.cli import main

if __name__ == "__main__":
    sys.exit(main())
