-- Accepts or refuses a vote and records it, in one step.
-- KEYS: battle, vote log, battles in the log
-- ARGV: voter, outcome, run that the record describes, record json, '1' when rated, ttl ms of a voted battle
--       (0 = none), battle id, day of the voter
-- Returns {'ok' | 'same', vote id, rated} or {reason of the refusal}.
local battle = redis.call('HMGET', KEYS[1], 'state', 'voter', 'vote_id', 'outcome', 'rated', 'run', 'votable', 'expires_ms')
if not battle[1] then return {'missing'} end
if battle[2] ~= ARGV[1] then return {'stranger'} end
if battle[3] then
  if battle[4] == ARGV[2] then return {'same', battle[3], battle[5]} end
  return {'conflict'}
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if battle[1] == 'aborted' then return {'aborted'} end
if tonumber(battle[8]) < now then return {'expired'} end
if battle[1] ~= 'answered' or battle[7] ~= '1' then return {'unfinished'} end
if battle[6] ~= ARGV[3] then return {'changed'} end
redis.call('SADD', KEYS[3], ARGV[7])
local vote_id = redis.call('XADD', KEYS[2], '*', 'record', ARGV[4], 'time', now, 'voter_day', ARGV[8])
redis.call('HSET', KEYS[1], 'state', 'voted', 'vote_id', vote_id, 'outcome', ARGV[2], 'rated', ARGV[5])
if ARGV[6] == '0' then
  redis.call('PERSIST', KEYS[1])
else
  redis.call('PEXPIRE', KEYS[1], ARGV[6])
end
return {'ok', vote_id, ARGV[5]}
