-- Settles deliveries that are still ours, and tells for each whether it was: 1 yes, 0 gone, or an error's text.
-- KEYS: stream, dead letters. ARGV: group, consumer, then for each: id, which delivery, verb, reason.
-- A delivery is ours while the entry is pending for this consumer and was delivered to nobody since.
local stream, group, consumer = KEYS[1], ARGV[1], ARGV[2]

local function is_ours(id, deliveries)
  local pending = redis.call('XPENDING', stream, group, id, id, 1)[1]
  return pending and pending[2] == consumer and pending[4] == tonumber(deliveries)
end

local function dead_letter(id, deliveries, reason)
  -- Somebody may have trimmed the entry away: what is known of it is kept all the same.
  local entry = redis.call('XRANGE', stream, id, id)[1]
  local fields = entry and entry[2] or {}
  for _, part in ipairs({
    'onlyonce-dead-letter-reason', reason,
    'onlyonce-dead-letter-position', stream .. ':' .. id,
    'onlyonce-dead-letter-group', group,
    'onlyonce-dead-letter-deliveries', deliveries,
  }) do
    fields[#fields + 1] = part
  end
  -- Lua cannot pass on more than some thousand fields: then this one fails, and no other.
  local ran, kept = pcall(function() return redis.pcall('XADD', KEYS[2], '*', unpack(fields)) end)
  return ran and kept or {err = tostring(kept)}
end

local answers = {}
for at = 3, #ARGV, 4 do
  local id, deliveries, verb, reason = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local answer = 0
  if is_ours(id, deliveries) then
    answer = 1
    if verb == 'dead' then
      local kept = dead_letter(id, deliveries, reason)
      if type(kept) == 'table' and kept.err then
        answer = kept.err
        verb = 'none'
      end
    end
    if verb == 'ack' or verb == 'dead' then
      redis.call('XACK', stream, group, id)
    elseif verb == 'keep' then
      -- The time counts from now; the number of deliveries stays.
      redis.call('XCLAIM', stream, group, consumer, 0, id, 'JUSTID')
    end
  end
  answers[#answers + 1] = answer
end
return answers
