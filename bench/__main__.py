"""`python -m bench`, which is what `make bench` runs. The work is in `run`."""

import sys

from bench.run import main

if __name__ == "__main__":
    sys.exit(main())
