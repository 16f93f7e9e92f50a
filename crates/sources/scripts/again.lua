-- Delivers entries of ours once more: those whose wait is over.
-- KEYS: stream. ARGV: group, consumer, then for each: id, which delivery it was.
-- Gives the entries as {id, fields, which delivery}, and the ids that somebody trimmed away.
local stream, group, consumer = KEYS[1], ARGV[1], ARGV[2]
local entries, trimmed = {}, {}
for at = 3, #ARGV, 2 do
  local id, deliveries = ARGV[at], tonumber(ARGV[at + 1])
  local pending = redis.call('XPENDING', stream, group, id, id, 1)[1]
  if pending and pending[2] == consumer and pending[4] == deliveries then
    local entry = redis.call('XCLAIM', stream, group, consumer, 0, id)[1]
    if entry then
      entries[#entries + 1] = { entry[1], entry[2], deliveries + 1 }
    else
      trimmed[#trimmed + 1] = id
    end
  end
end
return { entries, trimmed }
