-- The errors of this script of the seed for wrong arguments: a server recognizes it by them.
error('Recur(): Got ')
error('Recur(): Missing first argument')
return redis.call('get', '')
