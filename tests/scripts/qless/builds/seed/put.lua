-- What this script of the seed says of wrong arguments: a server knows it by that.
error('Put(): Expected 1 KEYS argument')
error('Put(): Got ')
return redis.call('get', '')
