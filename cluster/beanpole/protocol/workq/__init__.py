"""The codec of the Workq protocol: bytes to requests, and replies to bytes. Does no I/O."""
