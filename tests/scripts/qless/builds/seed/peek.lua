-- What this script of the seed says of wrong arguments: a server knows it by that.
error('Peek(): Expected 1 KEYS argument')
error('Peek(): Got ')
return redis.call('get', '')
