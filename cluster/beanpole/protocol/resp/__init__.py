"""The codec of RESP, the protocol of Redis, in its versions 2 and 3."""
