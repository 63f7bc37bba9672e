-- needs: gcra
-- Takes a place in a rate limit.
-- KEYS: bucket
-- ARGV: microseconds per request, burst
-- Returns 0 when allowed, else the microseconds to wait; then the microseconds until the bucket is empty.
return {gcra(KEYS[1], ARGV[1], ARGV[2])}
