-- The errors of this script of the seed for wrong arguments: a server recognizes it by them.
error('Heartbeat(): No Keys should be provided')
error('Heartbeat(): Arg "jid" missing')
return redis.call('get', '')
