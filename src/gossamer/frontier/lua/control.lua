-- What an operator decides: `control` pauses, stops or resumes a job, `switch` turns a host off or on for all jobs,
-- `delay` sets the least delay of a host for all jobs, and `forget` takes a part of a job off the schedule.
-- Returns how many hosts of the job are left to forget; to `held`, what of all this is in force.
local what, name, value = unpack(cmsgpack.unpack(ARGV[4]))
if what == 'held' then
  return { call('GET', key('control', name)) or '', call('SMEMBERS', key('off')), call('HGETALL', key('delays')) }
end

local function every_job(change)
  for _, owner in ipairs(call('HKEYS', key('rules'))) do
    local window = window_of(owner, name)
    if window then
      change(owner, window)
      touch(window.group)
    end
  end
end

if what == 'control' then
  if value == '' then
    call('DEL', key('control', name))
  else
    call('SET', key('control', name), value)
  end
elseif what == 'switch' then
  call(value and 'SREM' or 'SADD', key('off'), name)
  every_job(function() end)
elseif what == 'delay' then
  call('HSET', key('delays'), name, exact(value))
  every_job(function(owner, window)
    local group, pace = group_of(window.group, true), pace_of(owner, window.group)
    pace.floors['=' .. name] = value > rules_of(owner).delay and value or nil
    pace.delay = math.max(pace.delay, value)
    pace.due = math.max(pace.due, group.last + pace.delay)
    pace_changed[owner][window.group] = true
  end)
elseif what == 'forget' then
  for _, host in ipairs(call('HRANDFIELD', key('w', job), me.most)) do
    drop(job, host, window_of(job, host))
  end
  if call('HLEN', key('w', job)) == 0 then
    for _, kind in ipairs({ 'hungry', 'idle', 'stuck', 'ready', 'crowd', 'control', 'workers' }) do
      call('DEL', key(kind, job))
    end
    call('HDEL', key('rules'), job)
    if tonumber(call('HGET', key('c', job), 'leased') or 0) <= 0 then
      call('DEL', key('c', job))
      queued_more = 0
    end
  end
end
finish()
return call('HLEN', key('w', job))
