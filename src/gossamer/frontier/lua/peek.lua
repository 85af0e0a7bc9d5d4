-- When the first groups of this partition are due, for a worker that must choose between partitions. Returns how many
-- of them it prefers, and their instants before those of the others that it may lease from.
local limit, mine, patience = unpack(cmsgpack.unpack(ARGV[4]))
note_worker()
if call('EXISTS', key('control', job)) == 1 then
  return { 0 }
end
local due, others = { 0 }, {}
local most = mine == '' and limit or math.min(16 * limit + 64, me.most)
local found = call('ZRANGEBYSCORE', key('ready', job), '-inf', now, 'WITHSCORES', 'LIMIT', 0, most)
for place = 1, #found, 2 do
  local at = found[place + 1]
  if is_mine(mine, found[place]) then
    due[#due + 1] = at
  elseif tonumber(at) <= now - patience then
    others[#others + 1] = at
  end
end
due[1] = #due - 1
for place = 1, math.min(#others, limit) do
  due[#due + 1] = others[place]
end
return due
