"""The deterministic queue state machine. Pure: no clock, no I/O, no randomness, no logging."""
