-- sweep: for each of KEYS 1 removed, 2 made unknown, 0 kept, or why it cannot be read · ARGV[1] how many it may touch: what
-- follows the last of those has no answer
local function sweep()
  local r, wrong = read()
  if wrong then
    return wrong
  end
  if not r then
    return 0
  end
  if is_expired(r) then
    redis.call('DEL', KEYS[1])
    wake()
    return 1
  end
  if is_lapsed(r) then
    lapse(r)
    write(r)
    wake()
    return 2
  end
  return 0
end

local most = tonumber(ARGV[1])
local keys, codes = { unpack(KEYS) }, {}
for at, key in ipairs(keys) do
  if most == 0 then
    break
  end
  -- What reads and writes a record does so under the first key.
  KEYS[1] = key
  codes[at] = sweep()
  if codes[at] > 0 then
    most = most - 1
  end
end
return codes
