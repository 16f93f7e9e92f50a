-- erase: 1 erased, 2 in flight, 3 absent
local GONE = 4294967295
local r, wrong = read()
if wrong then
  return wrong
end
r = view(r)
if not r then
  return 3
end
if r.state == IN_FLIGHT then
  return 2
end
local steps, outcome = parts(r)
-- An outcome begins with what is left of it after this.
if outcome ~= '' then
  outcome = string.sub(outcome, 1, string.byte(outcome) + 5)
end
-- The names stay: a step that is forgotten would be made, and its effect had, a second time.
local names, at = {}, 1
while at <= #steps do
  local name_bytes = string.byte(steps, at)
  local value_bytes = struct.unpack('>I4', steps, at + 5 + name_bytes)
  names[#names + 1] = string.sub(steps, at, at + 4 + name_bytes) .. struct.pack('>I4', GONE)
  at = at + 9 + name_bytes
  if value_bytes ~= GONE then
    at = at + 4 + value_bytes
  end
end
write(r, tail_of(table.concat(names), outcome, ''))
wake()
return 1
