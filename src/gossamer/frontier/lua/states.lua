-- What of these groups' clocks must survive a restart: name, last start, delay, until, failures, slowness of each.
local states = {}
for _, name in ipairs(cmsgpack.unpack(ARGV[4])) do
  local group, pace = group_of(name), pace_of(job, name)
  if group and pace then
    for _, part in ipairs({
      name, exact(group.last), exact(pace.delay), exact(group.till), group.fails, exact(group.slow),
    }) do
      states[#states + 1] = part
    end
  end
end
return states
