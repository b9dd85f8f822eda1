"""`python -m beanpoled`: the same as the command `beanpoled`."""

import sys

from beanpoled.main import main

if __name__ == "__main__":
    sys.exit(main())
