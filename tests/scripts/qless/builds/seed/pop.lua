-- What this script of the seed says of wrong arguments: a server knows it by that.
error('Pop(): Expected 1 KEYS argument')
error('Pop(): Got ')
return redis.call('get', '')
