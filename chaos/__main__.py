"""`python -m chaos`, the program of `make soak`. The implementation is in `soak`."""

import sys

from chaos.soak import main

if __name__ == "__main__":
    sys.exit(main())
