-- A function for scripts whose first line is "-- needs: gcra": the generic cell rate algorithm. Takes a place in the
-- bucket and returns 0, or the microseconds until there is one.
local function gcra(bucket, interval_us, burst)
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local arrival = math.max(tonumber(redis.call('GET', bucket) or now), now)
  local full = now + interval_us * burst
  if arrival > full then  -- no bucket is fuller: it was written before the clock was set back
    arrival = full
    redis.call('SET', bucket, string.format('%.0f', arrival), 'PX', math.ceil((arrival - now) / 1000))
  end
  arrival = arrival + interval_us
  if arrival > full then return math.ceil(arrival - full) end
  redis.call('SET', bucket, string.format('%.0f', arrival), 'PX', math.ceil((arrival - now) / 1000))
  return 0
end
