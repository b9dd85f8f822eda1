"""The beanstalk client without I/O: what to send, how replies are read, where to go on a loss.

`blocking` and `aio` do the input and output; nothing here opens a socket or reads a clock.
"""
