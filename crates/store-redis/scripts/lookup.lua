-- lookup: the time, the record, checked, and how many bytes it has; nothing when absent. Decides nothing.
-- ARGV[1] `head`: only the head of the record.
local r, wrong = read()
if wrong then
  return wrong
end
if not r then
  return false
end
return { now, ARGV[1] == 'head' and string.sub(r.value, 1, r.tail_at - 1) or r.value, #r.value }
