-- The errors of this script of the seed for wrong arguments: a server recognizes it by them.
error('Tag(): Got ')
error('Tag(): Missing first arg "add", "remove" or "get"')
return redis.call('get', '')
