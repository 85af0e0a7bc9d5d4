-- Fill a window. Returns how many were placed, or -1 where the refill is no longer the one that is waited for.
local host, refill, limit, items = unpack(cmsgpack.unpack(ARGV[4]))
local window = window_of(job, host)
if not window or window.refill ~= refill or now >= window.asked + 2 * me.refill then
  return -1
end
local size, placed = window_size(), 0
local tombstones = key('t', job, host)
local any_settled = call('EXISTS', tombstones) == 1
window.exhausted = #items < limit and not window.missed
window.floor = false
for _, item in ipairs(items) do
  local fingerprint = string.sub(item, 1, 8)
  if any_settled and call('SISMEMBER', tombstones, fingerprint) == 1 then
    -- Settled since, or settled and queued again: only the ledger can tell.
    window.exhausted = false
  elseif place(host, window, fingerprint, string.sub(item, 9), size) then
    placed = placed + 1
  end
end
if #items >= limit and not window.floor then
  local last = items[#items]
  window.floor = { struct.unpack('>d', last, 17), seq_of(string.sub(last, 9)) }
end
window.refill = 0
call('DEL', tombstones)
call('ZREM', key('hungry', job), host)
note_hunger(host, window, size)
window_changed[job][host] = true
touch(window.group)
finish()
return placed
