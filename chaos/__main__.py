"""`python -m chaos`, which is what `make soak` runs. The work is in `soak`."""

import sys

from chaos.soak import main

if __name__ == "__main__":
    sys.exit(main())
