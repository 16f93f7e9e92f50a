-- peek: the time, the head of the record, checked, and how long the whole is; nothing when absent.
local r, wrong = read()
if wrong then
  return wrong
end
if not r then
  return false
end
return { now, string.sub(r.value, 1, r.tail_at - 1), #r.value }
