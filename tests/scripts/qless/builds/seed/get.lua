-- The errors of this script of the seed for wrong arguments: a server recognizes it by them.
error('Get(): No Keys should be provided')
error('Get(): Arg "jid" missing')
return redis.call('get', '')
