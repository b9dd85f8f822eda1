-- What this script of the seed says of wrong arguments: a server knows it by that.
error('Track(): No keys expected. Got ')
error('Track(): Arg "jid" missing')
return redis.call('get', '')
