-- Takes over entries whose consumer has not been heard of for too long.
-- KEYS: stream. ARGV: group, consumer, idle time in ms, where to go on, how many at most.
-- Gives where to go on next, the entries as {id, fields, which delivery}, and the ids that somebody trimmed away.
local stream, group = KEYS[1], ARGV[1]
local found = redis.call('XAUTOCLAIM', stream, group, ARGV[2], ARGV[3], ARGV[4], 'COUNT', ARGV[5])
local entries = {}
for _, entry in ipairs(found[2]) do
  if entry then
    local pending = redis.call('XPENDING', stream, group, entry[1], entry[1], 1)[1]
    entries[#entries + 1] = { entry[1], entry[2], pending[4] }
  end
end
return { found[1], entries, found[3] or {} }
