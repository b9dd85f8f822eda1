"""`python -m bench`, the program of `make bench`. The implementation is in `run`."""

import sys

from bench.run import main

if __name__ == "__main__":
    sys.exit(main())
