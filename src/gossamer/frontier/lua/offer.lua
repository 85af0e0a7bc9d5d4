-- Put requests into the windows that have room. Returns how many fitted.
local fitted, size = 0, window_size()
for _, batch in ipairs(cmsgpack.unpack(ARGV[4])) do
  local host, items = batch[1], batch[2]
  local window = window_of(job, host)
  if window then
    local placed = 0
    for _, item in ipairs(items) do
      if place(host, window, string.sub(item, 1, 8), string.sub(item, 9), size) then
        placed = placed + 1
      end
    end
    window_changed[job][host] = true
    if placed > 0 then
      touch(window.group)
      fitted = fitted + placed
    end
  end
end
finish()
return fitted
