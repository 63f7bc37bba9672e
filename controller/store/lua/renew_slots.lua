-- Prolongs leases that still exist. KEYS: the slots, one per lease. ARGV: lease ms, grace ms, then the lease ids.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 1, #KEYS do
  redis.call('ZADD', KEYS[i], 'XX', now + ARGV[1], ARGV[i + 2])
  redis.call('PEXPIRE', KEYS[i], ARGV[1] + ARGV[2])
end
return #KEYS
