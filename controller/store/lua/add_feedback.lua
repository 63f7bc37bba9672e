-- Appends to the log what the voter of a battle adds to the vote, unless it says what the last addition said.
-- KEYS: battle, vote log, battles and keys of other records in the log
-- ARGV: voter, most additions, the addition as json, key and json of its record
-- Returns {'ok' | 'same', id of the record, additions so far} or {reason of the refusal}.
local battle = redis.call('HMGET', KEYS[1], 'state', 'voter', 'feedback', 'feedback_id', 'num_feedback')
if not battle[1] then return {'missing'} end
if battle[2] ~= ARGV[1] then return {'stranger'} end
if battle[1] ~= 'voted' then return {'unvoted'} end
local number = tonumber(battle[5] or '0')
if battle[3] == ARGV[3] then return {'same', battle[4], number} end
if number >= tonumber(ARGV[2]) then return {'full'} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('SADD', KEYS[3], ARGV[4])
local id = redis.call('XADD', KEYS[2], '*', 'record', ARGV[5], 'time', now)
redis.call('HSET', KEYS[1], 'feedback', ARGV[3], 'feedback_id', id, 'num_feedback', number + 1)
return {'ok', id, number + 1}
