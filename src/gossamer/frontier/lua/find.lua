-- Which of the hosts are scheduled here. A host that is idle is asked for again: the ledger has work for it.
-- Returns the number of scheduled hosts, whether the schedule is crowded, and the places of the hosts found.
local hosts = cmsgpack.unpack(ARGV[4])
local found = { call('HLEN', key('w', job)), crowded and 1 or 0 }
for place, host in ipairs(hosts) do
  local window = window_of(job, host)
  if window then
    found[#found + 1] = place - 1
    if window.idle and not crowded then
      window.exhausted = false
      window_changed[job][host] = true
      call('ZADD', key('hungry', job), 'NX', now, host)
    end
  end
end
finish()
return found
