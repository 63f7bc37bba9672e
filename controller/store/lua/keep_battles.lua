-- Sets the lifetime of battles whose transcripts have been archived.
-- KEYS: battles
-- ARGV: ttl ms
for _, key in ipairs(KEYS) do
  if redis.call('PTTL', key) == -1 then redis.call('PEXPIRE', key, ARGV[1]) end
end
