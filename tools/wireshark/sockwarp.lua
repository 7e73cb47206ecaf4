-- Wireshark and tshark: sockwarp's Hello frames, the MPA startup frames that are the end of some of them, the FPDUs behind these, and
-- the stream header of RDMAP Sends. docs/DESIGN.md, "Hello frames", "MPA startup" and section 4.
--
-- Wireshark has dissectors for iWARP. That of DDP and RDMAP is given what is in the FPDUs. That of MPA wants to see the startup frames at
-- the beginning of segments, and takes nothing from Lua, so connections whose startup frames are inside the Hellos have theirs here;
-- all others (startup=separate, startup=immediate) are left to it, but for the one frame of dialect=rtr-frame that it does not know.
--
-- It belongs into one of the folders that `tshark -G folders` names as Lua plugins, or: tshark -X lua_script:sockwarp.lua

local MAGIC, KEY_LEN = "\245sockwarp\r\n\0", 16 -- a key is these octets and four letters
local HELLO_LEN, HELLO_LEN_MAX = 64, 1024
local TLV_DEVICE, TLV_MPA = 1, 2
local KINDS = { HELO = "question", HACK = "accepted", HNAK = "declined", HWDR = "question withdrawn", HSWI = "switch" }
local FLAG_SWITCH = 2

-- core/base/reason.h
local REASONS = {
    --[[ scripts/reasons: begin ]]
    [0] = "none",
    [1] = "upgraded",
    [2] = "policy-off",
    [3] = "no-local-shim",
    [4] = "cached-plain",
    [5] = "self",
    [6] = "hello-timeout",
    [7] = "hello-garbage",
    [8] = "hello-closed",
    [9] = "hello-nak",
    [10] = "peer-plain",
    [11] = "spoke-first",
    [12] = "mpa-failed",
    [13] = "mpa-rejected",
    [14] = "std-fd",
    [15] = "shared-fd",
    [16] = "fastopen",
    [17] = "zerocopy",
    [18] = "tcp-ulp",
    [19] = "mptcp",
    [20] = "own-io-uring",
    [21] = "epoll-kind",
    [22] = "urgent",
    [23] = "no-memory",
    [24] = "no-transport",
    [25] = "not-connected",
    [26] = "stdio",
    [27] = "exec",
    [28] = "peer-limit",
    [29] = "off",
    [30] = "closed",
    [31] = "withdrawn",
    [32] = "sandbox",
    [33] = "device-none",
    [34] = "device-address",
    [35] = "device-peer",
    [36] = "device-failed",
    [37] = "device-timeout",
    [38] = "device-forked",
    [39] = "device-memory",
    [40] = "device-kind",
    [41] = "timestamps",
    [42] = "version",
    [43] = "unmarked",
    [44] = "defer-accept",
    [45] = "delayed-ack",
    [46] = "backlog-full",
    [47] = "socket-filter",
    --[[ scripts/reasons: end ]]
}

-- ---- Hello ----

local hello = Proto("sockwarp", "sockwarp Hello")
local f = {
    kind = ProtoField.string("sockwarp.kind", "Kind"),
    version = ProtoField.uint8("sockwarp.version", "Version"),
    flags = ProtoField.uint8("sockwarp.flags", "Flags", base.HEX),
    withdraw = ProtoField.bool("sockwarp.flags.may_withdraw", "A withdrawal may follow", 8, nil, 1),
    switch = ProtoField.bool("sockwarp.flags.switch", "The switch may come late", 8, nil, 2),
    length = ProtoField.uint16("sockwarp.length", "Length"),
    arg = ProtoField.uint32("sockwarp.arg", "Argument"),
    transports = ProtoField.uint32("sockwarp.transports", "Transports", base.HEX),
    iwarp = ProtoField.bool("sockwarp.transports.iwarp", "Software iWARP", 32, nil, 1),
    verbs = ProtoField.bool("sockwarp.transports.verbs", "RDMA device", 32, nil, 2),
    shm = ProtoField.bool("sockwarp.transports.shm", "Same-host memory", 32, nil, 4),
    mixed = ProtoField.bool("sockwarp.transports.mixed", "Software facing a device", 32, nil, 8),
    reason = ProtoField.uint32("sockwarp.reason", "Reason", base.DEC, REASONS),
    nonce = ProtoField.bytes("sockwarp.nonce", "Nonce"),
    streamed = ProtoField.uint64("sockwarp.streamed", "Streaming octets before"),
    host = ProtoField.uint64("sockwarp.host", "Host identity", base.HEX),
    crc = ProtoField.uint32("sockwarp.crc", "CRC32C", base.HEX),
    tlv = ProtoField.uint16("sockwarp.tlv", "TLV", base.DEC, { [TLV_DEVICE] = "endpoint on a device", [TLV_MPA] = "MPA startup frame" }),
    tlv_len = ProtoField.uint16("sockwarp.tlv.length", "Length"),
    value = ProtoField.bytes("sockwarp.tlv.value", "Value"),
    streaming = ProtoField.bytes("sockwarp.streaming", "Streaming mode: the program's octets"),
}
hello.fields = f
local bad_length = ProtoExpert.new("sockwarp.bad_length", "A length that no Hello has", expert.group.MALFORMED, expert.severity.ERROR)
hello.experts = { bad_length }

-- By both ends' addresses and ports, since there is no tcp.stream where Wireshark builds no tree, as at its first look. asker: the port of
-- the end whose question it is; mpa: the Reply is in the HACK, FPDUs follow; late[port]: that side speaks in streaming mode up to its next
-- Hello; markers[port]: what that side sends has markers.
-- frames[number]: the stream of a frame; verdicts["number:offset"]: what octets without a Hello were taken for when they were first seen.
local streams, frames, verdicts = {}, {}, {}

function hello.init()
    streams, frames, verdicts = {}, {}, {}
end

local function ends_of(pinfo)
    local from, to = pinfo.src_port .. " " .. tostring(pinfo.src), pinfo.dst_port .. " " .. tostring(pinfo.dst)
    return from < to and from .. " " .. to or to .. " " .. from
end

local function stream_of(pinfo)
    if frames[pinfo.number] == nil then
        local ends = ends_of(pinfo)
        streams[ends] = streams[ends] or { late = {}, markers = {} }
        frames[pinfo.number] = streams[ends]
    end
    return frames[pinfo.number]
end

local function kind_at(tvb, offset)
    if tvb:reported_length_remaining(offset) < KEY_LEN or tvb:captured_len() < offset + KEY_LEN or
        tvb:raw(offset, #MAGIC) ~= MAGIC then
        return nil
    end
    local kind = tvb(offset + #MAGIC, KEY_LEN - #MAGIC):string()
    return KINDS[kind] and kind
end

-- Where the next Hello begins, at offset or behind it. (One that a segment's end cuts in its key is found in the next one only.)
local function find_hello(tvb, offset)
    local octets = tvb(offset):raw()
    local key = octets:find(MAGIC, 1, true)
    while key do
        if kind_at(tvb, offset + key - 1) then
            return offset + key - 1
        end
        key = octets:find(MAGIC, key + 1, true)
    end
    return nil
end

-- ---- MPA: RFC 5044 sections 4 and 7, RFC 6581 section 9 ----

local mpa = Proto("sockwarp_mpa", "MPA, started by a sockwarp Hello")
local p = {
    key = ProtoField.string("sockwarp_mpa.key", "Key"),
    flags = ProtoField.uint8("sockwarp_mpa.flags", "Flags", base.HEX),
    m = ProtoField.bool("sockwarp_mpa.flags.m", "Markers are wanted", 8, nil, 0x80),
    c = ProtoField.bool("sockwarp_mpa.flags.c", "CRC32C is wanted", 8, nil, 0x40),
    r = ProtoField.bool("sockwarp_mpa.flags.r", "Rejected", 8, nil, 0x20),
    s = ProtoField.bool("sockwarp_mpa.flags.s", "Enhanced startup", 8, nil, 0x10),
    rev = ProtoField.uint8("sockwarp_mpa.rev", "Revision"),
    pd_len = ProtoField.uint16("sockwarp_mpa.pd_length", "Private data length"),
    ird = ProtoField.uint16("sockwarp_mpa.ird", "IRD", base.DEC, nil, 0x3fff),
    ord = ProtoField.uint16("sockwarp_mpa.ord", "ORD", base.DEC, nil, 0x3fff),
    p2p = ProtoField.bool("sockwarp_mpa.rtr", "RTR is wanted", 16, nil, 0x8000),
    send = ProtoField.bool("sockwarp_mpa.rtr.send", "RTR: Send", 16, nil, 0x4000),
    write = ProtoField.bool("sockwarp_mpa.rtr.write", "RTR: Write", 16, nil, 0x8000),
    read = ProtoField.bool("sockwarp_mpa.rtr.read", "RTR: Read", 16, nil, 0x4000),
    private = ProtoField.bytes("sockwarp_mpa.private", "Private data"),
    ulpdu_len = ProtoField.uint16("sockwarp_mpa.ulpdu_length", "ULPDU length"),
    pad = ProtoField.bytes("sockwarp_mpa.pad", "Pad"),
    crc = ProtoField.uint32("sockwarp_mpa.crc", "CRC32C", base.HEX),
    marked = ProtoField.bytes("sockwarp_mpa.marked", "FPDUs with markers, not taken apart"),
}
mpa.fields = p
local bad_crc = ProtoExpert.new("sockwarp_mpa.bad_crc", "The CRC is wrong", expert.group.CHECKSUM, expert.severity.ERROR)
mpa.experts = { bad_crc }
local ddp_rdmap = Dissector.get("iwarp_ddp_rdmap")

local crc_table = {}
for i = 0, 255 do
    local c = i
    for _ = 1, 8 do
        c = bit.bxor(bit.rshift(c, 1), bit.band(c, 1) == 1 and 0x82f63b78 or 0)
    end
    crc_table[i] = c
end

local function crc32c(octets)
    local c = bit.bnot(0)
    for i = 1, #octets do
        c = bit.bxor(bit.rshift(c, 8), crc_table[bit.band(bit.bxor(c, octets:byte(i)), 255)])
    end
    c = bit.bnot(c)
    -- (MPA sends it with its least significant octet first.)
    return bit.tohex(bit.bswap(c))
end

local STARTUP_LEN = 20 -- without the private data
local RTR_KEY = "MPA ID RtR Frame" -- of the proposal of 2007
local STARTUPS = { Req = "Request", Rep = "Reply", RtR = "RtR" }

local function add_startup(tvb, pinfo, top, stream)
    local tree = top:add(mpa, tvb(), "MPA " .. (STARTUPS[tvb(7, 3):string()] or "?") .. " Frame")
    tree:add(p.key, tvb(0, 16))
    local flags = tree:add(p.flags, tvb(16, 1))
    for _, flag in ipairs({ p.m, p.c, p.r, p.s }) do
        flags:add(flag, tvb(16, 1))
    end
    tree:add(p.rev, tvb(17, 1))
    tree:add(p.pd_len, tvb(18, 2))
    local offset = STARTUP_LEN
    if bit.band(tvb(16, 1):uint(), 0x10) ~= 0 and tvb:len() >= 24 then
        tree:add(p.ird, tvb(20, 2))
        tree:add(p.p2p, tvb(20, 2))
        tree:add(p.send, tvb(20, 2))
        tree:add(p.ord, tvb(22, 2))
        tree:add(p.write, tvb(22, 2))
        tree:add(p.read, tvb(22, 2))
        offset = 24
    end
    if tvb:len() > offset then
        tree:add(p.private, tvb(offset))
    end
    stream.markers[pinfo.dst_port] = bit.band(tvb(16, 1):uint(), 0x80) ~= 0
end

local function add_fpdu(tvb, pinfo, top)
    local len = tvb(0, 2):uint()
    local crc_at = tvb:len() - 4
    local tree = top:add(mpa, tvb(), "MPA FPDU, ULPDU of " .. len .. " octets")
    tree:add(p.ulpdu_len, tvb(0, 2))
    if crc_at > 2 + len then
        tree:add(p.pad, tvb(2 + len, crc_at - 2 - len))
    end
    local item = tree:add(p.crc, tvb(crc_at, 4))
    local sent = tvb(crc_at, 4):bytes():tohex(true)
    if sent ~= "00000000" and sent ~= crc32c(tvb(0, crc_at):raw()) then
        item:add_proto_expert_info(bad_crc)
    end
    pinfo.cols.protocol = "sockwarp_mpa"
    if len > 0 then
        ddp_rdmap:call(tvb(2, len):tvb(), pinfo, top)
    end
end

-- All FPDUs from offset on. The octets that the last one lacks, or nil.
local function add_fpdus(tvb, offset, upto, pinfo, top, stream)
    if stream.markers[pinfo.src_port] then
        top:add(mpa, tvb(offset, upto - offset)):add(p.marked, tvb(offset, upto - offset))
        return nil
    end
    while offset < upto do
        local left = upto - offset
        if left < 2 then
            return offset, DESEGMENT_ONE_MORE_SEGMENT
        end
        local whole = math.floor((2 + tvb(offset, 2):uint() + 3) / 4) * 4 + 4
        if left < whole then
            return offset, whole - left
        end
        add_fpdu(tvb(offset, whole):tvb(), pinfo, top)
        offset = offset + whole
    end
    return nil
end

-- A frame that Wireshark's MPA would take for an FPDU.
local function add_rtr_frame(tvb, pinfo, top)
    local len = tvb:captured_len() >= STARTUP_LEN and STARTUP_LEN + tvb(18, 2):uint() or 0
    if len == 0 or tvb:raw(0, #RTR_KEY) ~= RTR_KEY or tvb:len() < len then
        return false
    end
    pinfo.cols.protocol = "sockwarp_mpa"
    pinfo.cols.info:append(" [RtR Frame]")
    add_startup(tvb(0, len):tvb(), pinfo, top, stream_of(pinfo))
    return true
end

-- ---- Hello, go on ----

local function add_tlvs(tvb, pinfo, tree, top, stream, kind)
    local offset = HELLO_LEN
    while offset + 4 <= tvb:len() do
        local tlv, len = tvb(offset, 2):uint(), tvb(offset + 2, 2):uint()
        local item = tree:add(f.tlv, tvb(offset, 2))
        if offset + 4 + len > tvb:len() then
            item:add_proto_expert_info(bad_length)
            return
        end
        item:add(f.tlv_len, tvb(offset + 2, 2))
        if tlv == TLV_MPA then
            add_startup(tvb(offset + 4, len):tvb(), pinfo, tree, stream)
            stream.mpa = stream.mpa or kind == "HACK"
        elseif len > 0 then
            item:add(f.value, tvb(offset + 4, len))
        end
        offset = offset + 4 + len
    end
end

local function note_kind(stream, pinfo, kind, flags)
    if pinfo.visited then
        return
    end
    if kind == "HELO" then
        stream.asker = pinfo.src_port
        stream.late[pinfo.dst_port] = true -- a talkative server, up to its answer
    elseif kind == "HACK" or kind == "HNAK" or kind == "HSWI" then
        stream.late[pinfo.src_port] = nil
    elseif kind == "HWDR" then
        stream.late[pinfo.src_port] = true
        stream.withdrawn = bit.band(flags, FLAG_SWITCH) == 0
    end
end

local function add_hello(tvb, pinfo, top, stream, kind)
    local tree = top:add(hello, tvb(), "sockwarp Hello: " .. kind .. ", " .. KINDS[kind])
    tree:add(f.kind, tvb(#MAGIC, KEY_LEN - #MAGIC))
    tree:add(f.version, tvb(16, 1))
    local flags = tree:add(f.flags, tvb(17, 1))
    flags:add(f.withdraw, tvb(17, 1))
    flags:add(f.switch, tvb(17, 1))
    tree:add(f.length, tvb(18, 2))
    if kind == "HELO" or kind == "HACK" then
        local transports = tree:add(f.transports, tvb(20, 4))
        for _, bit in ipairs({ f.iwarp, f.verbs, f.shm, f.mixed }) do
            transports:add(bit, tvb(20, 4))
        end
    elseif kind == "HNAK" then
        tree:add(f.reason, tvb(20, 4))
    else
        tree:add(f.arg, tvb(20, 4))
    end
    tree:add(f.nonce, tvb(24, 16))
    tree:add(f.streamed, tvb(40, 8))
    tree:add(f.host, tvb(48, 8))
    tree:add(f.crc, tvb(60, 4))
    pinfo.cols.protocol = "sockwarp"
    pinfo.cols.info:append(" [" .. kind .. "]")
    note_kind(stream, pinfo, kind, tvb(17, 1):uint())
    add_tlvs(tvb, pinfo, tree, top, stream, kind)
end

-- What stands before, between and behind Hellos.
local function verdict_of(pinfo, offset, stream)
    local place = pinfo.number .. ":" .. offset
    local verdict = verdicts[place]
    if verdict == nil then
        verdict = stream.late[pinfo.src_port] and "streaming" or stream.mpa and not stream.withdrawn and "mpa" or "plain"
        verdicts[place] = verdict
    end
    return verdict
end

function hello.dissector(tvb, pinfo, top)
    local stream, offset, len = stream_of(pinfo), 0, tvb:len()
    while offset < len do
        local kind = kind_at(tvb, offset)
        if kind == nil then
            local upto = find_hello(tvb, offset) or len
            local verdict = verdict_of(pinfo, tvb:offset() + offset, stream)
            if verdict == "mpa" then
                local from, lacks = add_fpdus(tvb, offset, upto, pinfo, top, stream)
                if from then
                    pinfo.desegment_offset, pinfo.desegment_len = from, lacks
                    return len
                end
            elseif verdict == "streaming" then
                top:add(hello, tvb(offset, upto - offset), "sockwarp: streaming mode"):add(f.streaming, tvb(offset, upto - offset))
            elseif offset == 0 and add_rtr_frame(tvb, pinfo, top) then
                return len
            elseif offset == 0 then
                return 0 -- somebody else's
            end
            if upto == len then
                return len
            end
            offset = upto
        else
            local total = len - offset >= 20 and tvb(offset + 18, 2):uint() or HELLO_LEN
            if total < HELLO_LEN or total > HELLO_LEN_MAX then
                top:add(hello, tvb(offset)):add_proto_expert_info(bad_length)
                return len
            end
            if len - offset < total then
                pinfo.desegment_offset = offset
                pinfo.desegment_len = total - (len - offset)
                return len
            end
            add_hello(tvb(offset, total):tvb(), pinfo, top, stream, kind)
            offset = offset + total
        end
    end
    return len
end

hello:register_heuristic("tcp", function(tvb, pinfo, top)
    local kind = kind_at(tvb, 0)
    if kind == nil then
        return false
    end
    if kind == "HELO" and not pinfo.visited then
        streams[ends_of(pinfo)] = nil -- a former connection's that had the same ports
    end
    pinfo.conversation = hello
    hello.dissector(tvb, pinfo, top)
    return true
end)

-- ---- the stream header, in every Send ----

local TYPES = { [1] = "DATA", [2] = "CREDIT", [3] = "FIN", [4] = "RESET" }
local msg = Proto("sockwarp_stream", "sockwarp stream header")
local m = {
    type = ProtoField.uint8("sockwarp_stream.type", "Type", base.DEC, TYPES),
    flags = ProtoField.uint8("sockwarp_stream.flags", "Flags", base.HEX),
    answer = ProtoField.bool("sockwarp_stream.flags.answer", "Answers a CREDIT", 8, nil, 1),
    urgent = ProtoField.bool("sockwarp_stream.flags.urgent", "The last octet is urgent", 8, nil, 2),
    bufs = ProtoField.uint16("sockwarp_stream.bufs", "Receive buffers returned"),
    offset = ProtoField.uint32("sockwarp_stream.offset", "Stream offset behind this message"),
    consumed = ProtoField.uint32("sockwarp_stream.consumed", "Ring octets consumed"),
    aux = ProtoField.uint32("sockwarp_stream.aux", "Aux"),
    payload = ProtoField.bytes("sockwarp_stream.payload", "The program's octets"),
}
msg.fields = m
local STREAM_HDR_LEN = 16

msg:register_heuristic("iwarp_ddp_rdmap", function(tvb, pinfo, top)
    local stream = stream_of(pinfo)
    if not stream.asker or tvb:len() < STREAM_HDR_LEN then
        return false
    end
    local kind, flags = tvb(0, 1):uint(), tvb(1, 1):uint()
    if not TYPES[kind] or flags > 3 or (kind ~= 1 and tvb:len() > STREAM_HDR_LEN) then
        return false
    end
    local tree = top:add(msg, tvb(), "sockwarp stream header: " .. TYPES[kind])
    tree:add(m.type, tvb(0, 1))
    local item = tree:add(m.flags, tvb(1, 1))
    item:add(m.answer, tvb(1, 1))
    item:add(m.urgent, tvb(1, 1))
    tree:add(m.bufs, tvb(2, 2))
    tree:add(m.offset, tvb(4, 4))
    tree:add(m.consumed, tvb(8, 4))
    tree:add(m.aux, tvb(12, 4))
    if tvb:len() > STREAM_HDR_LEN then
        tree:add(m.payload, tvb(STREAM_HDR_LEN))
    end
    return true
end)
