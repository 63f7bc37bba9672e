-- Appends judgements, except those whose keys the log has.
-- KEYS: vote log, battles and keys of other records in the log
-- ARGV: id of an entry that the caller has read ('0-0' = none), then for each judgement key, record json
-- Returns the ids that they got, '' for one whose key the log had, or false when the log lacks the entry of the caller.
if ARGV[1] ~= '0-0' and #redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1]) == 0 then return false end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ids = {}
for i = 2, #ARGV, 2 do
  if redis.call('SADD', KEYS[2], ARGV[i]) == 1 then
    ids[#ids + 1] = redis.call('XADD', KEYS[1], '*', 'record', ARGV[i + 1], 'time', now)
  else
    ids[#ids + 1] = ''
  end
end
return ids
