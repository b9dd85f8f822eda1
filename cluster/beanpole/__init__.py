"""The Beanpole library: what the cluster agrees on. It never imports the daemon (`beanpoled`)."""

from typing import Final

VERSION: Final = "0.4.0.dev0"
