-- Queued, leased and scheduled hosts of the job, whether it may lease at all, when the first group is due for whoever
-- asks, the instant, the workers that lease, and the epoch.
local limit, mine, patience = unpack(cmsgpack.unpack(ARGV[4]))
local counts = call('HMGET', key('c', job), 'queued', 'leased')
local control = call('GET', key('control', job)) or ''
local first
local ready = call('ZRANGE', key('ready', job), 0, mine == '' and 0 or limit - 1, 'WITHSCORES')
for place = 1, #ready, 2 do
  local at = tonumber(ready[place + 1])
  if is_mine(mine, ready[place]) then
    first = math.min(first or at, at)
    break
  elseif place == 1 then
    first = at + patience
  elseif place + 1 == 2 * limit then
    -- Behind the last one looked at there may be one of its own.
    first = math.min(first, at)
  end
end
return {
  tonumber(counts[1] or 0), tonumber(counts[2] or 0), call('HLEN', key('w', job)), control,
  first and exact(first) or '', exact(now), call('ZRANGE', key('workers', job), 0, -1), epoch_name(),
}
