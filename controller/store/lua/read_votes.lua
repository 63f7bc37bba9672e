-- Reads votes of the log, and what tells whether the log has been replaced since it was read before, at one moment.
-- KEYS: vote log, last restoration, arena
-- ARGV: id after which to read, most entries
-- Returns {id of the arena or '', token, time ms and number of votes of the last restoration or '', length of the log,
--          id of its last entry or '', entries}.
local restored = redis.call('HMGET', KEYS[2], 'token', 'time', 'votes')
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
return {
  redis.call('GET', KEYS[3]) or '',
  restored[1] or '', restored[2] or '', restored[3] or '',
  redis.call('XLEN', KEYS[1]),
  last[1] and last[1][1] or '',
  redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+', 'COUNT', ARGV[2]),
}
