-- The errors of this script of the seed for wrong arguments: a server recognizes it by them.
error('Fail(): No Keys should be provided')
error('Fail(): Arg "jid" missing')
return redis.call('get', '')
