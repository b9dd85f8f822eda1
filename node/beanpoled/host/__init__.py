"""The seam to the outside world, and its asyncio side. All I/O of a node but gRPC and HTTP."""
