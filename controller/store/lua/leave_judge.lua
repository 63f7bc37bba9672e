-- Ends a controller's time as the judge.
-- KEYS: judge
-- ARGV: id of the controller
-- Returns 1 if it was the judge.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
