-- What this script of the seed says of wrong arguments: a server knows it by that.
error('Fail(): No Keys should be provided')
error('Fail(): Arg "jid" missing')
return redis.call('get', '')
