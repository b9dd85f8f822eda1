-- What this script of the seed says of wrong arguments: a server knows it by that.
error('Depends(): No Keys should be provided')
error('Depends(): Arg "jid" missing.')
return redis.call('get', '')
