-- Appends entries to the log that is being built, and their battles, or keys of other records, to the set of those in the log.
-- KEYS: log that is being built, battles in the log
-- ARGV: ttl ms of an abandoned one, then for each entry id, battle id, record json, time ms, day of the voter or ''
-- Returns the length of the log that is being built.
for i = 2, #ARGV, 5 do
  if ARGV[i + 4] == '' then
    redis.call('XADD', KEYS[1], ARGV[i], 'record', ARGV[i + 2], 'time', ARGV[i + 3])
  else
    redis.call('XADD', KEYS[1], ARGV[i], 'record', ARGV[i + 2], 'time', ARGV[i + 3], 'voter_day', ARGV[i + 4])
  end
  redis.call('SADD', KEYS[2], ARGV[i + 1])
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return redis.call('XLEN', KEYS[1])
