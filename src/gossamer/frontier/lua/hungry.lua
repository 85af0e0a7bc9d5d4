-- Hand out refills. A host stays on the list, for later: a worker that dies while refilling does not starve it.
-- Returns host, number and limit of each.
local refills, size = {}, window_size()
local hosts = call('ZRANGEBYSCORE', key('hungry', job), '-inf', now, 'LIMIT', 0, cmsgpack.unpack(ARGV[4]))
for _, host in ipairs(hosts) do
  local window = window_of(job, host)
  if window then
    window.refill, window.asked, window.missed = number(), now, false
    window_changed[job][host] = true
    call('DEL', key('t', job, host))
    call('ZADD', key('hungry', job), now + me.refill, host)
    refills[#refills + 1] = host
    refills[#refills + 1] = exact(window.refill)
    -- The ledger also returns what is leased: ask for that much more than fits.
    refills[#refills + 1] = size + window.leased
  else
    call('ZREM', key('hungry', job), host)
  end
end
finish()
return refills
