-- secret: the first one offered is kept. KEYS[1] the secret · ARGV[1] the one offered
local kept = redis.call('GET', KEYS[1])
if kept then
  return kept
end
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]
