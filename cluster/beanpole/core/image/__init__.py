"""Canonical serialization of the machine, and loading."""
