-- whole: a lock in a shared dictionary; balancer/ewma.lua is its one user.
local _M = {}
_M.__index = _M

function _M.new(_, dict, opts)
  opts = opts or {}
  if not ngx.shared[dict] then
    return nil, "dictionary not found"
  end
  return setmetatable({
    dict = ngx.shared[dict],
    timeout = opts.timeout or 5,
    exptime = opts.exptime or 30,
  }, _M)
end

function _M.lock(self, key)
  local waited, step = 0, 0.001
  while true do
    local ok, err = self.dict:add(key, true, self.exptime)
    if ok then
      self.key = key
      return waited
    end
    if err ~= "exists" then
      return nil, err
    end
    if waited >= self.timeout then
      return nil, "timeout"
    end
    ngx.sleep(step)
    waited, step = waited + step, math.min(step * 2, 0.5)
  end
end

function _M.unlock(self)
  if not self.key then
    return nil, "unlocked"
  end
  self.dict:delete(self.key)
  self.key = nil
  return 1
end

return _M
