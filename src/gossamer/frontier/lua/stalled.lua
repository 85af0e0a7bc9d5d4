-- Unschedule hosts that cannot be served. Returns host and reason of each.
local horizon = cmsgpack.unpack(ARGV[4])
local names = call('SPOP', key('stuck', job), me.most)
local later = call('ZRANGEBYSCORE', key('ready', job), '(' .. exact(horizon), '+inf', 'LIMIT', 0, me.most)
for _, spot in ipairs(later) do
  names[#names + 1] = name_at(spot)
end
local stalls = {}

local function reason_for(host, window, group, pace)
  if window.leased > 0 or window.refill ~= 0 or window.queued + window.waits == 0 then
    return nil
  elseif is_off(host) then
    return 'switched_off'
  elseif is_full(window, me) then
    return 'host_limit'
  elseif is_given_up(group.fails, me) then
    return group.why
  elseif due_of(group, pace) > horizon then
    return 'wait_too_long'
  end
end

for _, name in ipairs(names) do
  local group, pace = group_of(name), pace_of(job, name)
  for place = group and pace and #pace.hosts or 0, 1, -1 do
    local host = pace.hosts[place]
    local window = window_of(job, host)
    local reason = reason_for(host, window, group, pace)
    if reason then
      drop(job, host, window)
      stalls[#stalls + 1] = host
      stalls[#stalls + 1] = reason
    end
  end
  if group and pace then
    touch(name)
  end
end
finish()
return stalls
