-- Marks battles as voted whose votes are brought back, so that the same vote sent again gets its answer, and no other
-- vote is taken. A battle that is gone comes back without its turns.
-- KEYS: battle, for each vote
-- ARGV: ttl ms of a battle that comes back, then for each vote id, outcome, '1' when rated, voter, day of the voter, mode,
--       side a json, side b json, flags of the vote
for i, key in ipairs(KEYS) do
  local at = 2 + (i - 1) * 9
  if redis.call('EXISTS', key) == 0 then
    redis.call('HSET', key, 'voter', ARGV[at + 3], 'voter_day', ARGV[at + 4], 'mode', ARGV[at + 5],
      'side:a', ARGV[at + 6], 'side:b', ARGV[at + 7], 'sampling', '{}', 'turn', 0, 'run', 0, 'votable', '0',
      'expires_ms', 0)
    redis.call('PEXPIRE', key, ARGV[1])
  end
  redis.call('HSET', key, 'state', 'voted', 'vote_id', ARGV[at], 'outcome', ARGV[at + 1], 'rated', ARGV[at + 2],
    'flags', ARGV[at + 8])
end
