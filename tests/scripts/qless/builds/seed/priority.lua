-- The errors of this script of the seed for wrong arguments: a server recognizes it by them.
error('Priority(): Got ')
error('Priority(): Arg "jid" missing')
return redis.call('get', '')
