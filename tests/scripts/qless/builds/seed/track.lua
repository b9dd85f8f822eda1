-- The errors of this script of the seed for wrong arguments: a server recognizes it by them.
error('Track(): No keys expected. Got ')
error('Track(): Arg "jid" missing')
return redis.call('get', '')
