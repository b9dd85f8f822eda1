-- What this script of the seed says of wrong arguments: a server knows it by that.
error('Priority(): Got ')
error('Priority(): Arg "jid" missing')
return redis.call('get', '')
