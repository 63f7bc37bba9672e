-- Appends votes of another arena's log. KEYS: votes, battles in the log
-- ARGV: for each vote battle id, record json, time ms. Returns how many were new.
local imported = 0
for i = 1, #ARGV, 3 do
  if redis.call('SADD', KEYS[2], ARGV[i]) == 1 then
    redis.call('XADD', KEYS[1], '*', 'record', ARGV[i + 1], 'time', ARGV[i + 2])
    imported = imported + 1
  end
end
return imported
