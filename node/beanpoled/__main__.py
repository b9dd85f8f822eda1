"""`python -m beanpoled`: the same as the command `beanpoled`."""

from beanpoled.launch import main

if __name__ == "__main__":
    main()
