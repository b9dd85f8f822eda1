-- The errors of this script of the seed for wrong arguments: a server recognizes it by them.
error('Depends(): No Keys should be provided')
error('Depends(): Arg "jid" missing.')
return redis.call('get', '')
