-- What this script of the seed says of wrong arguments: a server knows it by that.
error('Get(): No Keys should be provided')
error('Get(): Arg "jid" missing')
return redis.call('get', '')
