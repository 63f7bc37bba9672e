-- Gives the arena an id, unless it has one.
-- KEYS: arena
-- ARGV: the id that it gets
-- Returns the id that it has.
redis.call('SET', KEYS[1], ARGV[1], 'NX')
return redis.call('GET', KEYS[1])
