-- The usual sweep first, of what has expired. ARGV[1] 'remove' · then for each of KEYS how the record begins (76 bytes), as it
-- was read by one who found its check right: nothing is made or checked again for those that still begin so.
if ARGV[1] == 'remove' then
  local codes, gone = {}, {}
  for at, key in ipairs(KEYS) do
    local start = ARGV[at + 1]
    codes[at] = 0
    if string.byte(start, 2) ~= 0 and now >= struct.unpack('>I6', start, 71)
      and redis.pcall('GETRANGE', key, 0, 75) == start then
      codes[at] = 1
      gone[#gone + 1] = key
    end
  end
  if #gone > 0 then
    redis.call('DEL', unpack(gone))
    for _, key in ipairs(gone) do
      redis.pcall('PUBLISH', key, '')
    end
  end
  return codes
end

