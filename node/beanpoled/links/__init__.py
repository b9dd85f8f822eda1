"""Messages between members: hellos, frames, and the admission of disks."""
