-- The errors of this script of the seed for wrong arguments: a server recognizes it by them.
error('Config(): No keys should be provided')
error('Config(): Arg "option" missing')
return redis.call('get', '')
