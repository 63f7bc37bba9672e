-- Accepts or refuses a vote and records it, in one step.
-- KEYS: battle, vote log, battles in the log
-- ARGV: voter, outcome, run that the record describes, record json, '1' when rated, ttl ms of a voted battle
--       (0 = none), battle id, day of the voter, number of votes that the caller's journal has seen in the log, id of the
--       last of them ('0-0' = none), why the vote is not rated (flags, separated by commas)
-- Returns {'ok' | 'same', vote id, rated, flags} or {reason of the refusal}; {'behind'} when the log lacks votes that the journal
-- has seen, perhaps one on this battle.
local battle = redis.call('HMGET', KEYS[1], 'state', 'voter', 'vote_id', 'outcome', 'rated', 'run', 'votable', 'expires_ms',
  'flags')
if not battle[1] then return {'missing'} end
if battle[2] ~= ARGV[1] then return {'stranger'} end
if battle[3] then
  if battle[4] == ARGV[2] then return {'same', battle[3], battle[5], battle[9] or ''} end
  return {'conflict'}
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if battle[1] == 'aborted' then return {'aborted'} end
if tonumber(battle[8]) < now then return {'expired'} end
if battle[1] ~= 'answered' or battle[7] ~= '1' then return {'unfinished'} end
if battle[6] ~= ARGV[3] then return {'changed'} end
if redis.call('XLEN', KEYS[2]) < tonumber(ARGV[9]) then return {'behind'} end
if ARGV[10] ~= '0-0' and #redis.call('XRANGE', KEYS[2], ARGV[10], ARGV[10]) == 0 then return {'behind'} end
redis.call('SADD', KEYS[3], ARGV[7])
local vote_id = redis.call('XADD', KEYS[2], '*', 'record', ARGV[4], 'time', now, 'voter_day', ARGV[8])
redis.call('HSET', KEYS[1], 'state', 'voted', 'vote_id', vote_id, 'outcome', ARGV[2], 'rated', ARGV[5],
  'flags', ARGV[11])
if ARGV[6] == '0' then
  redis.call('PERSIST', KEYS[1])
else
  redis.call('PEXPIRE', KEYS[1], ARGV[6])
end
return {'ok', vote_id, ARGV[5], ARGV[11]}
