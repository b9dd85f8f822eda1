"""qless: a queue of its own order and time, beside the kernel's, in the same machine."""
