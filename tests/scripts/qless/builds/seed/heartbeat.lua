-- What this script of the seed says of wrong arguments: a server knows it by that.
error('Heartbeat(): No Keys should be provided')
error('Heartbeat(): Arg "jid" missing')
return redis.call('get', '')
