-- What this script of the seed says of wrong arguments: a server knows it by that.
error('Cancel(): No Keys should be provided')
error('Cancel(): Arg "jid" missing.')
return redis.call('get', '')
