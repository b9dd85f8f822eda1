-- What this script of the seed says of wrong arguments: a server knows it by that.
error('Retry(): Got ')
error('Retry(): Arg "jid" missing')
return redis.call('get', '')
