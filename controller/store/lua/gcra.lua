-- A function for scripts whose first line is "-- needs: gcra": the generic cell rate algorithm. Takes a place in the
-- bucket and returns 0, or the microseconds until there is one.
local function gcra(bucket, interval_us, burst)
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  -- A full bucket empties within interval * burst. What is later was written before the clock was set back.
  local latest = math.min(tonumber(redis.call('GET', bucket) or now), now + interval_us * burst)
  local arrival = math.max(latest, now) + interval_us
  local wait = arrival - interval_us * burst - now
  if wait > 0 then return math.ceil(wait) end
  redis.call('SET', bucket, string.format('%.0f', arrival), 'PX', math.ceil((arrival - now) / 1000))
  return 0
end
