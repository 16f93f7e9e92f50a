-- Keeps ARGV[1] for ARGV[2] ms. Not where nothing may be put, and no hint (ARGV[3]) where something is.
local first = redis.call('GETRANGE', KEYS[1], 0, 0)
if first == '\0' or (ARGV[3] == '1' and first ~= '') then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
