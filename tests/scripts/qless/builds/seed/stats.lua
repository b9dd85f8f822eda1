-- The errors of this script of the seed for wrong arguments: a server recognizes it by them.
error('Stats(): No Keys should be provided')
error('Stats(): Arg "queue" missing')
return redis.call('get', '')
