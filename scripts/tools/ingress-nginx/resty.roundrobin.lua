-- whole: round robin over { ["ip:port"] = weight }; the calls that
-- balancer/round_robin.lua and balancer/resty.lua make.
local _M = {}
_M.__index = _M

function _M.reinit(self, nodes)
  local copy, ring, max = {}, {}, 0
  for id, weight in pairs(nodes) do
    copy[id] = weight
    if weight > max then max = weight end
  end
  -- One pass per unit of weight, so a heavy node's turns are spread out.
  for pass = 1, max do
    for id, weight in pairs(copy) do
      if weight >= pass then ring[#ring + 1] = id end
    end
  end
  self.nodes, self.ring, self.size = copy, ring, #ring
  -- Workers start apart from each other.
  self.at = #ring > 0 and math.random(#ring) or 0
end

function _M.new(_, nodes)
  local self = setmetatable({}, _M)
  self:reinit(nodes)
  return self
end

function _M.find(self)
  if self.size == 0 then
    return nil
  end
  local at = self.at % self.size + 1
  self.at = at
  return self.ring[at]
end
_M.next = _M.find

return _M
