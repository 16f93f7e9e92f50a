-- sweep, one record: 1 removed, 2 made unknown, 0 kept
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
