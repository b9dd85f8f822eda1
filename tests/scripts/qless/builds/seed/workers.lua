-- The errors of this script of the seed for wrong arguments: a server recognizes it by them.
error('Workers(): No key arguments expected')
error('Workers(): Arg "now" missing or not a number: ')
return redis.call('get', '')
