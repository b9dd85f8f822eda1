-- What this script of the seed says of wrong arguments: a server knows it by that.
error('Complete(): No Keys should be provided')
error('Complete(): Arg "jid" missing.')
return redis.call('get', '')
