-- sweep: for each of KEYS 1 removed, 2 made unknown, 0 kept, or why it cannot be read · ARGV[1] 'look': the same without
-- doing it
local looks = ARGV[1] == 'look'
local keys, codes, gone = { unpack(KEYS) }, {}, {}

local function sweep(value)
  local r, wrong = read(value)
  if wrong then
    return wrong
  end
  if not r then
    return 0
  end
  if is_expired(r) then
    gone[#gone + 1] = KEYS[1]
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

-- Read together and removed together: whoever carries this waits for it.
local values = redis.call('MGET', unpack(keys))
for at, key in ipairs(keys) do
  -- What reads and writes a record does so under the first key.
  KEYS[1] = key
  codes[at] = sweep(values[at])
end
if #gone > 0 and not looks then
  redis.call('DEL', unpack(gone))
  for _, key in ipairs(gone) do
    KEYS[1] = key
    wake()
  end
end
return codes
