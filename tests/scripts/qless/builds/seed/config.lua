-- What this script of the seed says of wrong arguments: a server knows it by that.
error('Config(): No keys should be provided')
error('Config(): Arg "option" missing')
return redis.call('get', '')
