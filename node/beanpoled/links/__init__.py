"""Messages between members: hellos, frames, and which disks are let in."""
