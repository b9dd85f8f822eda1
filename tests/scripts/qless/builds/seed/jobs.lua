-- The errors of this script of the seed for wrong arguments: a server recognizes it by them.
error('Jobs(): Got ')
error('Jobs(): Arg "type" missing')
return redis.call('get', '')
