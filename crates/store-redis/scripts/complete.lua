-- complete: ARGV[1] owner, fence, retention (0 for the claim's), whether to touch · ARGV[2] the outcome as the tail of a
-- record without steps
local DONE, ALREADY, LATE, ALARM, FENCED = 1, 2, 3, 4, 5
local owner, fence, retention, is_touched = struct.unpack('>c16I8I6B', ARGV[1])
local offered = string.sub(ARGV[2], 9)
local r, wrong = read(stored_value)
if wrong then
  return wrong
end
if not is_held_by(r, owner, fence) or is_expired(r) or r.state == RELEASED then
  return FENCED
end
local steps, outcome, late = parts(r)
if r.state ~= COMPLETED then
  -- Also past the lease: the same fence turns unknown into known.
  if retention == 0 then
    retention = r.retention
  end
  r.state, r.by, r.recovery, r.at, r.expires = COMPLETED, EXECUTION, '', now, later(retention)
  write(r, tail_of(steps, offered, ''))
  wake()
  return DONE
end
local is_erased = #outcome == string.byte(outcome) + 5
if outcome == offered or (r.by == EXECUTION and is_erased) then
  touch(is_touched)
  return ALREADY
end
-- The stored outcome goes along, so that damage is told from a difference.
if r.by == EXECUTION then
  return { ALARM, outcome }
end
-- One late outcome is kept, and none once the record was erased: that would bring the body back.
if late == '' and not is_erased then
  write(r, tail_of(steps, outcome, offered))
  wake()
else
  touch(is_touched)
end
return { LATE, outcome }
