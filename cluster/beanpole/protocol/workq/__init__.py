"""The Workq protocol: bytes of clients to requests, and back. Pure, as every codec is."""
