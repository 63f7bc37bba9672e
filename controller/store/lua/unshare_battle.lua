-- Takes a link back. The battle lives no longer than one that was never shared, counted from now.
-- KEYS: battle, link
-- ARGV: id of the link, ttl ms of a voted battle (0 = none)
if redis.call('HGET', KEYS[1], 'share') == ARGV[1] then redis.call('HDEL', KEYS[1], 'share') end
redis.call('DEL', KEYS[2])
if tonumber(ARGV[2]) > 0 and redis.call('PTTL', KEYS[1]) > tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
