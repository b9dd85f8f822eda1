-- What this script of the seed says of wrong arguments: a server knows it by that.
error('Failed(): No Keys should be provided')
error('Failed(): Arg "start" is not a number: ')
return redis.call('get', '')
