-- Debian installs lua-resty-cookie under another name, and an older release
-- without SameSite, which goes through the free-text field here.
local cookie = require("nginx.cookie")
local set = cookie.set
function cookie.set(self, c)
  if c.samesite then
    c.extension = "SameSite=" .. c.samesite
  end
  return set(self, c)
end
return cookie
