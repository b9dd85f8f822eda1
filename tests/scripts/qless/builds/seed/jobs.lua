-- What this script of the seed says of wrong arguments: a server knows it by that.
error('Jobs(): Got ')
error('Jobs(): Arg "type" missing')
return redis.call('get', '')
