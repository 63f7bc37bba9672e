-- Renews the capacity leases that still exist. One that was removed is not added again, because its place may be taken.
-- KEYS: for each lease the leases of its worker
-- ARGV: lease ms, grace ms, then the lease ids
-- Returns the number of leases asked for.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 1, #KEYS do
  redis.call('ZADD', KEYS[i], 'XX', now + ARGV[1], ARGV[i + 2])
  redis.call('PEXPIRE', KEYS[i], ARGV[1] + ARGV[2])
end
return #KEYS
