-- The errors of this script of the seed for wrong arguments: a server recognizes it by them.
error('Peek(): Expected 1 KEYS argument')
error('Peek(): Got ')
return redis.call('get', '')
