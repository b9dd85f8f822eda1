-- The errors of this script of the seed for wrong arguments: a server recognizes it by them.
error('Put(): Expected 1 KEYS argument')
error('Put(): Got ')
return redis.call('get', '')
