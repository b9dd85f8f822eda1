"""What members say to each other: hellos, frames, and which disks may speak."""
