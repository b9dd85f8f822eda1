-- The errors of this script of the seed for wrong arguments: a server recognizes it by them.
error('Failed(): No Keys should be provided')
error('Failed(): Arg "start" is not a number: ')
return redis.call('get', '')
