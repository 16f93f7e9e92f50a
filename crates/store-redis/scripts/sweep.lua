-- sweep: for each of KEYS 1 removed, 2 made unknown, 0 kept, or why it cannot be read · ARGV[1] 'look': the same without
-- doing it
local looks = ARGV[1] == 'look'

local function sweep()
  local r, wrong = read()
  if wrong then
    return wrong
  end
  if not r then
    return 0
  end
  if is_expired(r) then
    if not looks then
      redis.call('DEL', KEYS[1])
      wake()
    end
    return 1
  end
  if is_lapsed(r) then
    if not looks then
      lapse(r)
      write(r)
      wake()
    end
    return 2
  end
  return 0
end

local keys, codes = { unpack(KEYS) }, {}
for at, key in ipairs(keys) do
  -- What reads and writes a record does so under the first key.
  KEYS[1] = key
  codes[at] = sweep()
end
return codes
