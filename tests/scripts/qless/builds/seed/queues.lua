-- What this script of the seed says of wrong arguments: a server knows it by that.
error('Queues(): Got ')
error('Queues(): Arg "now" missing or not a number: ')
return redis.call('get', '')
