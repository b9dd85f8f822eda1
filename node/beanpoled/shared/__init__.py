"""The state that all parts of a node share: its configuration, time, machine and replica."""
