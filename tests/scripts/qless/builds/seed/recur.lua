-- What this script of the seed says of wrong arguments: a server knows it by that.
error('Recur(): Got ')
error('Recur(): Missing first argument')
return redis.call('get', '')
