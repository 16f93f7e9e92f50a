-- The largest time there is: 48 bits.
local FOREVER = 281474976710655
-- How much longer than its record a key lives: expiry only collects garbage, so a clock that jumps frees nothing.
local MARGIN = 3600000
