-- The errors of this script of the seed for wrong arguments: a server recognizes it by them.
error('Retry(): Got ')
error('Retry(): Arg "jid" missing')
return redis.call('get', '')
