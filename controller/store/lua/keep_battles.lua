-- Sets the lifetime of battles whose transcripts have been archived.
-- KEYS: battles
-- ARGV: ttl ms, ttl ms of a battle that is shared
for _, key in ipairs(KEYS) do
  if redis.call('PTTL', key) == -1 then
    redis.call('PEXPIRE', key, redis.call('HEXISTS', key, 'share') == 1 and ARGV[2] or ARGV[1])
  end
end
