"""`python -m beanpoled` is `beanpoled`."""

from beanpoled.main import main

main()
