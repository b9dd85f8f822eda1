-- The errors of this script of the seed for wrong arguments: a server recognizes it by them.
error('Pop(): Expected 1 KEYS argument')
error('Pop(): Got ')
return redis.call('get', '')
