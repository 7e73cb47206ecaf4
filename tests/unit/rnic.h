/*
 * An RNIC of the RDMA Consortium's protocols, before the RFCs, and one of the RFCs that can be either (RFC 5044 appendix C: "RDMAC
 * RNIC", "Permissive IETF RNIC"), by words of their own: startup frames, and Sends in FPDUs. Nothing is shared with core/ but
 * octet order and CRC32c.
 *
 * What differs in the older form (the MPA draft of 2002): Rev 0, Markers and CRCs always, DDP's and RDMAP's versions 0, and the
 * FPDUPTR counts from the FPDU's first octet, which may be a Marker's; the RFC's from the length field.
 */
#ifndef SW_TESTS_UNIT_RNIC_H
#define SW_TESTS_UNIT_RNIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RNIC_FRAME_LEN 20u
#define RNIC_SEND_MAX(len) ((len) + 64u + (len) / 100u)

struct rnic {
    bool permissive; /* can do the RFCs' form, too */
    bool markers;    /* permissive: wants them with the RFCs' form */
    /* What was agreed. */
    uint8_t version; /* of DDP and RDMAP; 0: the older form */
    bool rx_markers, tx_markers;
    /* What was sent and received. */
    uint64_t tx_pos, rx_pos;
    uint32_t tx_msn, rx_msn;
};

/* As it is before a connection. */
struct rnic rnic_new(bool permissive, bool markers);
/* Initiator: its Request. */
void rnic_request(struct rnic *r, uint8_t buf[RNIC_FRAME_LEN]);
/* Responder: the Reply to this Request; false: it closes. */
bool rnic_hear_request(struct rnic *r, const uint8_t *buf, size_t len, uint8_t reply[RNIC_FRAME_LEN]);
/* Initiator: true: FPDUs follow; false: it closes. */
bool rnic_hear_reply(struct rnic *r, const uint8_t *buf, size_t len);
/* One Send of these octets, as one FPDU in its form; octets put out (at most RNIC_SEND_MAX(len)). */
size_t rnic_send(struct rnic *r, const void *data, size_t len, uint8_t *out);
/* The FPDU at buf, of len octets, if it is the next Send in its form: octets of payload, copied to data; -1 if it is not. */
ssize_t rnic_recv(struct rnic *r, const uint8_t *buf, size_t len, uint8_t *data);

#endif
