-- Keeps ARGV[1] for ARGV[2] ms. Not where nothing may be put, no hint (ARGV[3]) where something is, and nothing that was
-- under way until after ARGV[4]: the mark of an erasure may have come and gone.
local time = redis.call('TIME')
if time[1] * 1000 + math.floor(time[2] / 1000) > tonumber(ARGV[4]) then return 0 end
local first = redis.call('GETRANGE', KEYS[1], 0, 0)
if first == '\0' or (ARGV[3] == '1' and first ~= '') then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
