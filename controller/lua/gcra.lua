-- Generic cell rate algorithm. KEYS: the bucket. ARGV: microseconds per request, burst
-- Returns 0 when allowed, else the microseconds to wait.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local arrival = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now) + ARGV[1]
local wait = arrival - ARGV[1] * ARGV[2] - now
if wait > 0 then return math.ceil(wait) end
redis.call('SET', KEYS[1], string.format('%.0f', arrival), 'PX', math.ceil((arrival - now) / 1000))
return 0
