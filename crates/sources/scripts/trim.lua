-- Removes entries that every group has settled. What any group has still to read, or to settle, stays.
-- KEYS: stream. Gives how many went.
local stream = KEYS[1]

-- Ids as numbers would lose digits: compare the two parts as text of equal length.
local function padded(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return string.rep('0', 20 - #ms) .. ms .. string.rep('0', 20 - #seq) .. seq
end

local lowest
for _, facts in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local group = {}
  for at = 1, #facts, 2 do
    group[facts[at]] = facts[at + 1]
  end
  -- Somebody may have set a group back: then what it reads again is older than what it has pending.
  local id = group['last-delivered-id']
  if group.pending > 0 then
    local first = redis.call('XPENDING', stream, group.name)[2]
    if padded(first) < padded(id) then
      id = first
    end
  end
  if not lowest or padded(id) < padded(lowest) then
    lowest = id
  end
end
if not lowest then
  return 0
end
return redis.call('XTRIM', stream, 'MINID', lowest)
