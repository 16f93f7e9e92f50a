-- sweep: for each of KEYS 1 removed, 2 made unknown, 0 kept, or why it cannot be read
local keys, codes = { unpack(KEYS) }, {}

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

for at, key in ipairs(keys) do
  -- What reads and writes a record does so under the first key.
  KEYS[1] = key
  codes[at] = sweep()
end
return codes
