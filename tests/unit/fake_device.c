/*
 * The drivers' rules; see fake_device.h.
 */
#include "tests/unit/fake_device.h"

#include <string.h>

#include "core/base/bytes.h"
#include "core/base/must.h"
#include "core/mpa/startup.h"

enum { M = 0x80, C = 0x40, R = 0x20, S = 0x10 };
enum {
    A = 0x8000,
    B = 0x4000,
    MASK = 0x3fff
}; /* of the first half of the word; C and D are those bits of the second */
enum { RTR_WRITE = 0x8000, RTR_READ = 0x4000 };
enum { HDR = 20, WORD = 4 };

static const char req_key[] = "MPA ID Req Frame", rep_key[] = "MPA ID Rep Frame";

static size_t put(uint8_t *buf, const char *key, unsigned flags, unsigned rev, uint16_t first, uint16_t second,
                  const char *priv)
{
    size_t len = strlen(priv), word = rev >= 2 ? WORD : 0;

    memcpy(buf, key, 16);
    buf[16] = (uint8_t)(flags | (word ? S : 0));
    buf[17] = (uint8_t)rev;
    put_be16(buf + 18, (uint16_t)(word + len));
    put_be16(buf + 20, first);
    put_be16(buf + 22, second);
    memcpy(buf + HDR + word, priv, len);
    return HDR + word + len;
}

static struct fake_result refuse(enum fake_answer how, uint8_t code, const char *rule)
{
    return (struct fake_result){ .answer = how, .code = code, .rule = rule };
}

static uint16_t min16(uint16_t a, uint16_t b)
{
    return a < b ? a : b;
}

/* ---- irdma ---- */

/* irdma_parse_mpa: what both frames have to be. NULL: the frame is good so far. */
static const char *irdma_parse(const struct fake_device *d, const uint8_t *buf, size_t len, const char *key)
{
    if (len < HDR || get_be16(buf + 18) > 512)
        return "irdma_parse_mpa: too short, or private data too long";
    if (buf[17] < 1 || buf[17] > 2 || buf[17] > d->rev)
        return "irdma_parse_mpa: unsupported mpa rev";
    if (memcmp(buf, key, 16) != 0)
        return "irdma_parse_mpa: unexpected MPA key";
    /* The frame is looked for in one segment; nothing waits for the rest. */
    if ((size_t)HDR + get_be16(buf + 18) > len)
        return "irdma_parse_mpa: ietf buffer len";
    /* irdma_negotiate_mpa_v2_ird_ord, whatever S says */
    if (buf[17] == 2 && !(get_be16(buf + 20) & A))
        return "irdma_negotiate_mpa_v2_ird_ord: not IETF_PEER_TO_PEER";
    if (buf[17] == 2 && !(get_be16(buf + 22) & (RTR_READ | RTR_WRITE)))
        return "irdma_negotiate_mpa_v2_ird_ord: neither Read nor Write";
    return NULL;
}

static size_t irdma_request(const struct fake_device *d, uint8_t *buf)
{
    return put(buf, req_key, C, d->rev, (uint16_t)(A | d->ird), (uint16_t)(RTR_READ | RTR_WRITE | d->ord), "irdma");
}

static struct fake_result irdma_hear_request(const struct fake_device *d, const uint8_t *buf, size_t len)
{
    struct fake_result r = { .answer = FAKE_ACCEPT };
    const char *wrong = irdma_parse(d, buf, len, req_key);
    if (wrong != NULL)
        return refuse(FAKE_RESET, 0, wrong);
    if (buf[17] == 1) {
        r.reply_len = put(r.reply, rep_key, C, 1, 0, 0, "irdma");
        return r;
    }
    uint16_t peer_ird = get_be16(buf + 20) & MASK, peer_ord = get_be16(buf + 22) & MASK;
    uint16_t ird = d->ird, ord = d->ord;
    bool read = get_be16(buf + 22) & RTR_READ; /* Read comes first */
    if (peer_ird == MASK || peer_ord == MASK) {
        ird = ord = MASK;
    } else {
        ird = peer_ord == 0 && read ? 1 : ird;
        ord = min16(ord, peer_ird);
    }
    r.rtr = read ? MPA_RTR_READ : MPA_RTR_WRITE;
    r.reply_len =
        put(r.reply, rep_key, C, 2, (uint16_t)(A | ird), (uint16_t)((read ? RTR_READ : RTR_WRITE) | ord), "irdma");
    return r;
}

static struct fake_result irdma_hear_reply(const struct fake_device *d, const uint8_t *buf, size_t len)
{
    struct fake_result r = { .answer = FAKE_ACCEPT };
    const char *wrong = irdma_parse(d, buf, len, rep_key);
    if (wrong != NULL)
        return refuse(FAKE_RESET, 0, wrong);
    if (buf[16] & R)
        return refuse(FAKE_REJECT, 0, "irdma_parse_mpa: IETF_MPA_FLAGS_REJECT");
    if (buf[17] == 1)
        return r;
    uint16_t ird = get_be16(buf + 20) & MASK, ord = get_be16(buf + 22) & MASK;
    bool read = get_be16(buf + 22) & RTR_READ;
    if (ird != MASK && ord != MASK) {
        if (ird == 0 && read)
            return refuse(FAKE_RESET, 0, "irdma_negotiate_mpa_v2_ird_ord: RDMA0_READ without IRD");
        if (d->ird < ord)
            return refuse(FAKE_RESET, 0, "irdma_negotiate_mpa_v2_ird_ord: no resources");
    }
    r.rtr = read ? MPA_RTR_READ : MPA_RTR_WRITE;
    return r;
}

/* ---- cxgb4 ---- */

/* process_mpa_request, process_mpa_reply */
static const char *cxgb4_parse(const struct fake_device *d, const uint8_t *buf, size_t len, const char *key)
{
    if (len < HDR || buf[17] > d->rev)
        return "process_mpa: MPA version mismatch";
    if (memcmp(buf, key, 16) != 0)
        return "process_mpa: key";
    if (get_be16(buf + 18) > 256)
        return "process_mpa: plen > MPA_MAX_PRIVATE_DATA";
    if (len > (size_t)HDR + get_be16(buf + 18))
        return "process_mpa: octets behind the frame";
    return NULL;
}

static size_t cxgb4_request(const struct fake_device *d, uint8_t *buf)
{
    return put(buf, req_key, C, d->rev, (uint16_t)(A | d->ird), (uint16_t)(RTR_READ | d->ord), "cxgb4");
}

static struct fake_result cxgb4_hear_request(const struct fake_device *d, const uint8_t *buf, size_t len)
{
    struct fake_result r = { .answer = FAKE_ACCEPT };
    const char *wrong = cxgb4_parse(d, buf, len, req_key);
    if (wrong != NULL)
        return refuse(FAKE_RESET, 0, wrong);
    if (buf[17] < 2 || !(buf[16] & S)) {
        r.reply_len = put(r.reply, rep_key, C, 1, 0, 0, "cxgb4");
        r.rtr =
            MPA_RTR_READ; /* "mpa->revision == 1: if (peer2peer) p2p_type": it waits for one, and takes what comes */
        return r;
    }
    uint16_t first = get_be16(buf + 20), second = get_be16(buf + 22);
    /* Which kind the Request names matters only for whether there is one: send_mpa_reply says p2p_type. */
    bool p2p = (first & A) && (second & (RTR_READ | RTR_WRITE));
    uint16_t ord = min16(d->ord, first & MASK), ird = d->ird;
    if (p2p && ird == 0)
        ird = 1; /* c4iw_accept_cr */
    r.rtr = p2p ? MPA_RTR_READ : 0;
    r.reply_len =
        put(r.reply, rep_key, C, 2, (uint16_t)((p2p ? A : 0) | ird), (uint16_t)((p2p ? RTR_READ : 0) | ord), "cxgb4");
    return r;
}

static struct fake_result cxgb4_hear_reply(const struct fake_device *d, const uint8_t *buf, size_t len)
{
    struct fake_result r = { .answer = FAKE_ACCEPT, .rtr = MPA_RTR_READ };
    const char *wrong = cxgb4_parse(d, buf, len, rep_key);
    if (wrong != NULL)
        return refuse(FAKE_RESET, 0, wrong);
    if (buf[16] & R)
        return refuse(FAKE_REJECT, 0, "process_mpa_reply: MPA_REJECT");
    if (buf[17] < 2 || !(buf[16] & S))
        return r;
    uint16_t first = get_be16(buf + 20), second = get_be16(buf + 22);
    uint8_t rtr = !(first & A) ? 0 : (second & RTR_WRITE) ? MPA_RTR_WRITE : (second & RTR_READ) ? MPA_RTR_READ : 0;
    if (rtr != MPA_RTR_READ) /* "p2p_type != p2p_type" */
        return refuse(FAKE_TERMINATE, 7, "process_mpa_reply: RTR mismatch");
    if ((second & MASK) > 32) /* RELAXED_IRD_NEGOTIATION: up to what the device has */
        return refuse(FAKE_TERMINATE, 6, "process_mpa_reply: insufficient IRD");
    return r;
}

/* ---- qed ---- */

static size_t qed_request(const struct fake_device *d, uint8_t *buf)
{
    return put(buf, req_key, C, d->rev, (uint16_t)(A | B | d->ird), (uint16_t)(RTR_READ | RTR_WRITE | d->ord), "qed");
}

static struct fake_result qed_hear_request(const struct fake_device *d, const uint8_t *buf, size_t len)
{
    struct fake_result r = { .answer = FAKE_ACCEPT };
    if (len != (size_t)HDR + get_be16(buf + 18) || memcmp(buf, req_key, 16) != 0)
        return refuse(FAKE_RESET, 0, "the firmware");
    if (buf[17] < 2 || !(buf[16] & S)) {
        r.reply_len = put(r.reply, rep_key, C, 1, 0, 0, "qed");
        return r;
    }
    uint16_t first = get_be16(buf + 20), second = get_be16(buf + 22);
    uint16_t ird = d->ird, ord = min16(d->ord, min16(first & MASK, 32)); /* qed_iwarp_accept */
    uint16_t kinds = 0, send = 0;
    if (first & A) { /* qed_iwarp_mpa_received: all that are common, or all */
        send = first & B;
        kinds = second & (RTR_READ | RTR_WRITE);
        if (send == 0 && kinds == 0) {
            send = B;
            kinds = RTR_READ | RTR_WRITE;
        }
        if ((kinds & RTR_READ) && ird == 0)
            ird = 1;
    }
    r.rtr = (uint8_t)((send ? MPA_RTR_SEND : 0) | (kinds & RTR_WRITE ? MPA_RTR_WRITE : 0) |
                      (kinds & RTR_READ ? MPA_RTR_READ : 0));
    r.reply_len = put(r.reply, rep_key, C, 2, (uint16_t)((first & A) | send | ird), (uint16_t)(kinds | ord), "qed");
    return r;
}

/* (qed_iwarp_mpa_complete: the firmware finds IWARP_CONN_ERROR_MPA_INSUF_IRD, _RTR_MISMATCH, _INVALID_PACKET.) */
static struct fake_result qed_hear_reply(const struct fake_device *d, const uint8_t *buf, size_t len)
{
    struct fake_result r = { .answer = FAKE_ACCEPT };
    if (len < HDR || memcmp(buf, rep_key, 16) != 0)
        return refuse(FAKE_RESET, 0, "IWARP_CONN_ERROR_MPA_INVALID_PACKET");
    if (buf[16] & R)
        return refuse(FAKE_REJECT, 0, "IWARP_CONN_ERROR_MPA_ERROR_REJECT");
    if (buf[17] < 2 || !(buf[16] & S))
        return r;
    uint16_t first = get_be16(buf + 20), second = get_be16(buf + 22);
    if ((second & MASK) > d->ird)
        return refuse(FAKE_TERMINATE, 6, "IWARP_CONN_ERROR_MPA_INSUF_IRD");
    if (!(first & A) || (!(first & B) && !(second & (RTR_READ | RTR_WRITE))))
        return refuse(FAKE_TERMINATE, 7, "IWARP_CONN_ERROR_MPA_RTR_MISMATCH");
    r.rtr = first & B ? MPA_RTR_SEND : second & RTR_WRITE ? MPA_RTR_WRITE : MPA_RTR_READ;
    return r;
}

/* ---- siw ---- */

static size_t siw_request(const struct fake_device *d, uint8_t *buf)
{
    uint16_t p2p = d->p2p ? A : 0, rtr = d->p2p ? RTR_WRITE | RTR_READ : 0;
    return put(buf, req_key, d->crc ? C : 0, d->rev, (uint16_t)(p2p | d->ird), (uint16_t)(rtr | d->ord), "siw");
}

/* siw_recv_mpa_rr: octets behind the frame are an error; a short frame is waited for. */
static const char *siw_parse(const uint8_t *buf, size_t len, const char *key)
{
    if (len < HDR || get_be16(buf + 18) > 256)
        return "siw_recv_mpa_rr: pd_len > MPA_MAX_PRIVDATA";
    if (len > (size_t)HDR + get_be16(buf + 18))
        return "siw_recv_mpa_rr: peer sent extra data";
    if (buf[17] > 2)
        return "siw_proc_mpa: revision";
    return memcmp(buf, key, 16) != 0 ? "siw_proc_mpa: key" : NULL;
}

static struct fake_result siw_hear_request(const struct fake_device *d, const uint8_t *buf, size_t len)
{
    struct fake_result r = { .answer = FAKE_ACCEPT };
    const char *wrong = siw_parse(buf, len, req_key);
    if (wrong != NULL)
        return refuse(FAKE_RESET, 0, wrong);
    bool enhanced = buf[17] == 2 && (buf[16] & S);
    if (enhanced && get_be16(buf + 18) < WORD)
        return refuse(FAKE_REJECT, 0, "siw_proc_mpareq: no room for mpa_v2_data");
    if (buf[16] & M)
        return refuse(FAKE_REJECT, 0, "siw_proc_mpareq: markers");
    unsigned flags = (buf[16] & C) | (d->crc ? C : 0);
    if (!enhanced) {
        r.reply_len = put(r.reply, rep_key, flags, 1, 0, 0, "siw");
        r.reply[17] = buf[17]; /* it answers in the Request's header */
        return r;
    }
    uint16_t first = get_be16(buf + 20), second = get_be16(buf + 22);
    uint16_t ird = min16(second & MASK, 128), ord = min16(first & MASK, 128), kind = 0;
    if (first & A)
        kind = (second & RTR_WRITE) || !(second & RTR_READ) ? RTR_WRITE : RTR_READ;
    r.rtr = kind == RTR_WRITE ? MPA_RTR_WRITE : kind == RTR_READ ? MPA_RTR_READ : 0;
    r.reply_len = put(r.reply, rep_key, flags, 2, (uint16_t)((first & A) | ird), (uint16_t)(kind | ord), "siw");
    return r;
}

static struct fake_result siw_hear_reply(const struct fake_device *d, const uint8_t *buf, size_t len)
{
    struct fake_result r = { .answer = FAKE_ACCEPT };
    const char *wrong = siw_parse(buf, len, rep_key);
    if (wrong != NULL)
        return refuse(FAKE_RESET, 0, wrong);
    if (buf[16] & R)
        return refuse(FAKE_REJECT, 0, "siw_proc_mpareply: MPA_RR_FLAG_REJECT");
    if ((buf[16] & M) || (d->crc && !(buf[16] & C)))
        return refuse(FAKE_RESET, 0, "siw_proc_mpareply: markers, or CRC");
    if (d->rev < 2)
        return r;
    if (buf[17] < 2 || !(buf[16] & S))
        return refuse(FAKE_RESET, 0, "siw_proc_mpareply: not MPA_RR_FLAG_ENHANCED");
    uint16_t first = get_be16(buf + 20), second = get_be16(buf + 22);
    /* relaxed_ird_negotiation is true */
    if (d->ird < (second & MASK) && (second & MASK) > 128)
        return refuse(FAKE_TERMINATE, 6, "siw_proc_mpareply: ird_insufficient");
    (void)first; /* its A is not looked at */
    if (!d->p2p)
        return r;
    if (!(second & (RTR_WRITE | RTR_READ)))
        return refuse(FAKE_TERMINATE, 7, "siw_proc_mpareply: no matching rtr");
    r.rtr = second & RTR_WRITE ? MPA_RTR_WRITE : MPA_RTR_READ; /* siw_qp_mpa_rts */
    return r;
}

#define DEVICE(driver, text, ...)                                                           \
    {                                                                                       \
        .name = (text), .request = driver##_request, .hear_request = driver##_hear_request, \
        .hear_reply = driver##_hear_reply, __VA_ARGS__                                      \
    }

const struct fake_device fake_devices[] = {
    DEVICE(irdma, "irdma", .rev = 2, .ird = 32, .ord = 32, .p2p = true, .crc = true),
    DEVICE(irdma, "irdma without depths", .rev = 2, .ird = 0, .ord = 0, .p2p = true, .crc = true),
    DEVICE(irdma, "irdma of Rev 1", .rev = 1, .ird = 32, .ord = 32, .crc = true),
    DEVICE(cxgb4, "cxgb4", .rev = 2, .ird = 32, .ord = 32, .p2p = true, .crc = true),
    DEVICE(cxgb4, "cxgb4 with mpa_rev=1", .rev = 1, .ird = 32, .ord = 32, .crc = true),
    DEVICE(qed, "qed", .rev = 2, .ird = 32, .ord = 32, .p2p = true, .crc = true),
    DEVICE(siw, "siw", .rev = 2, .ird = 128, .ord = 128),
    DEVICE(siw, "siw with peer_to_peer", .rev = 2, .ird = 128, .ord = 128, .p2p = true),
    DEVICE(siw, "siw with mpa_crc_required", .rev = 2, .ird = 16, .ord = 16, .crc = true),
    DEVICE(siw, "siw of Rev 1", .rev = 1, .ird = 16, .ord = 16),
};
const size_t fake_devices_n = SW_ARRAY_LEN(fake_devices);

const struct fake_device *fake_device(const char *name)
{
    for (size_t i = 0; i < fake_devices_n; i++)
        if (strcmp(fake_devices[i].name, name) == 0)
            return &fake_devices[i];
    return NULL;
}
