"""Lua's sockets: a server that waits in select() for all its clients, and its HTTP client."""

import nginx
from matrix import digest, entry

NEEDS = ["lua5.4", "/usr/share/lua/5.4/socket.lua"]
VERSION = ["dpkg-query", "-W", "lua-socket"]

# Lines come back in capitals; what cannot be sent at once waits.
SERVER = r"""
local socket = require("socket")
local listener = assert(socket.bind("127.0.0.1", tonumber(arg[1]), 64))
listener:settimeout(0)
local all, out, half = { listener }, {}, {}
local function writers()
    local list = {}
    for s, text in pairs(out) do if #text > 0 then list[#list + 1] = s end end
    return list
end
local function leave(s)
    for n, other in ipairs(all) do if other == s then table.remove(all, n) break end end
    out[s], half[s] = nil, nil
    s:close()
end
while true do
    local readable, writable = socket.select(all, writers())
    for _, s in ipairs(readable) do
        if s == listener then
            local new = listener:accept()
            if new then new:settimeout(0); all[#all + 1] = new; out[new] = "" end
        else
            local data, err, part = s:receive(100000)
            data = data or part
            if out[s] then out[s] = out[s] .. data:upper() end
            if err == "closed" then
                s:settimeout(nil); s:send(out[s]); leave(s)
            end
        end
    end
    for _, s in ipairs(writable) do
        if out[s] then
            local done, err, last = s:send(out[s])
            out[s] = out[s]:sub((done or last) + 1)
            if err == "closed" then leave(s) end
        end
    end
end
"""

CLIENT = r"""
local socket = require("socket")
local right = 0
for n = 1, 20 do
    local s = assert(socket.connect("127.0.0.1", tonumber(arg[1])))
    local text = string.rep("line " .. n .. " of some\n", n * 500)
    local sent, got, parts = 0, 0, {}
    s:settimeout(0)
    while got < #text do
        local readable, writable = socket.select({ s }, sent < #text and { s } or nil)
        if writable[1] then
            local done, _, last = s:send(text, sent + 1)
            sent = done or last
        end
        if readable[1] then
            local data, err, part = s:receive(30000)
            data = data or part
            parts[#parts + 1], got = data, got + #data
            if err == "closed" then break end
        end
    end
    s:shutdown("send")
    s:settimeout(nil)
    local rest, _, part = s:receive("*a")
    if table.concat(parts) == text:upper() and (rest or part) == "" then right = right + 1 end
    s:close()
end
print(right)
"""

FETCH = 'local body, status = require("socket.http").request(arg[1]); assert(status == 200); io.write(body)'


@entry("Lua", "luasocket: a server in select(), 20 clients that send and receive at once", needs=NEEDS, version=VERSION, at_least=20)
def lua_select(run):
    run.talk("lua5.4", SERVER, CLIENT, right=20, what="clients that were right", status=None)
    return "20 clients, lines right"


@entry("Lua", "luasocket's http client, from nginx", needs=[*NEEDS, "nginx"], version=VERSION, at_least=4)
def lua_http(run):
    port, child, _ = nginx.files(run)
    script = run.write("fetch.lua", FETCH)
    for name, want in (("small", nginx.SMALL), ("big", nginx.BIG)) * 2:
        got = run.call("lua5.4", script, "http://127.0.0.1:%d/%s" % (port, name), text=False)
        run.same(digest(got), digest(want), "octets of /" + name)
    run.stop(child, number=3)
    return "checksums of 100 MB equal"
