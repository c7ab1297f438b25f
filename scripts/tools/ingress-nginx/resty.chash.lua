-- whole: consistent hashing over { [id] = weight }, 160 points per unit of
-- weight, four to an MD5 digest. Steady, but keys do not land on the same
-- node as with the official image's C library.
local md5, byte = ngx.md5_bin, string.byte
local POINTS = 40

local _M = {}
_M.__index = _M

local function word(digest, i)
  local a, b, c, d = byte(digest, i, i + 3)
  return ((a * 256 + b) * 256 + c) * 256 + d
end

function _M.reinit(self, nodes)
  local copy, ring = {}, {}
  for id, weight in pairs(nodes) do
    copy[id] = weight
    for n = 1, POINTS * weight do
      local digest = md5(id .. "-" .. n)
      for i = 1, 13, 4 do
        ring[#ring + 1] = { word(digest, i), id }
      end
    end
  end
  table.sort(ring, function(x, y)
    if x[1] ~= y[1] then return x[1] < y[1] end
    return x[2] < y[2]
  end)
  self.nodes, self.ring = copy, ring
end

function _M.new(_, nodes)
  local self = setmetatable({}, _M)
  self:reinit(nodes)
  return self
end

function _M.find(self, key)
  local ring = self.ring
  if #ring == 0 then
    return nil
  end
  local point, lo, hi = word(md5(tostring(key)), 1), 1, #ring + 1
  while lo < hi do
    local mid = math.floor((lo + hi) / 2)
    if ring[mid][1] < point then lo = mid + 1 else hi = mid end
  end
  local index = lo > #ring and 1 or lo
  return ring[index][2], index
end

return _M
