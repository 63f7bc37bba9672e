-- Makes a controller the judge, or keeps it one.
-- KEYS: judge
-- ARGV: id of the controller, ttl ms
-- Returns 1 if it is the judge now, 0 if another one is.
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
