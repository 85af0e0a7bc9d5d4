-- Schedule hosts, empty and hungry. Returns 1 if there was no room for all of them.
local limit, infos = unpack(cmsgpack.unpack(ARGV[4]))
local full = 0
call('HSET', key('rules'), job, ARGV[3])

-- The clock of a group: as it is known here, and no shorter than the ledger remembers it.
local function clock(name, info)
  local group = group_of(name)
  if not group then
    group = group_of(name, true)
    group.fails = is_parked(info.fails, me) and me.park or info.fails
    group.slow = info.slow
    if me.resumed > 0 then
      group.due = me.resumed + math.max(info.delay, me.delay)
    end
  end
  group.last = math.max(group.last, info.last)
  group.till = math.max(group.till, info.till)
  return group
end

local function join(name, info)
  local group = clock(name, info)
  local pace = pace_of(job, name)
  if not pace then
    pace = {
      delay = math.max(info.delay, me.delay), due = 0, hosts = {}, floors = {}, spot = '', windows = 0, home = nobody(name),
    }
    paces[job][name] = pace
    group.jobs[#group.jobs + 1] = job
  end
  local asked = tonumber(call('HGET', key('delays'), info.host) or 0)
  if asked > me.delay then
    pace.floors['=' .. info.host] = asked
    pace.delay = math.max(pace.delay, asked)
  end
  pace.windows = pace.windows + 1
  pace_changed[job][name] = true
  touch(name)
end

local active = call('HLEN', key('w', job))
for _, info in ipairs(infos) do
  if not window_of(job, info.host) then
    if active >= limit then
      call('SET', key('crowd', job), '1')
      full = 1
      break
    end
    join(info.group, info)
    windows[job][info.host] = {
      group = info.group, exhausted = false, floor = false, refill = 0, asked = 0, missed = false, served = 0,
      leased = 0, taken = info.pages, queued = 0, waits = 0, listed = false, idle = false,
    }
    window_changed[job][info.host] = true
    active = active + 1
    call('ZADD', key('hungry', job), now, info.host)
  end
end
finish()
return full
