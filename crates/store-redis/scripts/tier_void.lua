-- Forgets, and for ARGV[1] s nothing may be put here: what was read before may still be on its way.
redis.call('SET', KEYS[1], '\0', 'EX', ARGV[1])
return 1
