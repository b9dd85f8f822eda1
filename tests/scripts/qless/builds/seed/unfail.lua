-- The errors of this script of the seed for wrong arguments: a server recognizes it by them.
error('Unfail(): Expected 0 KEYS arguments')
error('Unfail(): Arg "now" missing')
return redis.call('get', '')
