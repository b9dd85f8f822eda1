-- The errors of this script of the seed for wrong arguments: a server recognizes it by them.
error('Complete(): No Keys should be provided')
error('Complete(): Arg "jid" missing.')
return redis.call('get', '')
