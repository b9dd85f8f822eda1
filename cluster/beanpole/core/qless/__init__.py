"""qless: a queue with its own order and clock, beside the kernel's, in the same machine."""
