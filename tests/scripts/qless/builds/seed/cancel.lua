-- The errors of this script of the seed for wrong arguments: a server recognizes it by them.
error('Cancel(): No Keys should be provided')
error('Cancel(): Arg "jid" missing.')
return redis.call('get', '')
