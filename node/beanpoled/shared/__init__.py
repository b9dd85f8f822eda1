"""Shared by all parts of a node: its configuration, time, machine and replica."""
