-- What this script of the seed says of wrong arguments: a server knows it by that.
error('Tag(): Got ')
error('Tag(): Missing first arg "add", "remove" or "get"')
return redis.call('get', '')
