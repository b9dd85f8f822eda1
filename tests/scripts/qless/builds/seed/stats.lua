-- What this script of the seed says of wrong arguments: a server knows it by that.
error('Stats(): No Keys should be provided')
error('Stats(): Arg "queue" missing')
return redis.call('get', '')
