-- lookup: the time and the whole record, checked; nothing when absent. Decides nothing.
local r, wrong = read()
if wrong then
  return wrong
end
if not r then
  return false
end
return { now, r.value }
