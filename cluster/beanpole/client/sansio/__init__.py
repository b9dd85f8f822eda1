"""The beanstalk client without I/O: requests, replies, and failover when a connection is lost.

`blocking` and `aio` do the I/O; nothing here opens a socket or reads a clock.
"""
