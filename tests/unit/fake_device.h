/*
 * What the drivers of devices take and refuse in an MPA startup, as code: read from their sources in Linux 6.1 (and the
 * same in
 * 6.12), each rule with the function that has it. Nothing here is a device: what firmware does is not known, and not said.
 *
 *   irdma  drivers/infiniband/hw/irdma/cm.c
 *   cxgb4  drivers/infiniband/hw/cxgb4/cm.c, with peer2peer=1, p2p_type=1 (Read)
 *   qed    drivers/net/ethernet/qlogic/qed/qed_iwarp.c; what it leaves to the firmware counts as taken
 *   siw    drivers/infiniband/sw/siw/siw_cm.c
 */
#ifndef SW_TESTS_UNIT_FAKE_DEVICE_H
#define SW_TESTS_UNIT_FAKE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_FRAME_MAX 600u

/* How a device answers. */
enum fake_answer {
    FAKE_RESET,     /* by a reset, without an octet */
    FAKE_REJECT,    /* by a Reply with R, then it closes */
    FAKE_TERMINATE, /* by a Terminate, with .code of the MPA layer */
    FAKE_ACCEPT,
};

struct fake_result {
    enum fake_answer answer;
    uint8_t code;
    const char *rule; /* the driver's function that refused */
    uint8_t rtr;      /* MPA_RTR_* that it sends, or is to get; 0: none */
    uint8_t reply[FAKE_FRAME_MAX];
    size_t reply_len;
};

struct fake_device {
    const char *name;
    uint8_t rev;       /* the highest it knows: a module parameter in cxgb4 */
    uint16_t ird, ord; /* of its own program */
    bool p2p;          /* initiator: asks for the peer-to-peer model */
    bool crc;          /* wants it */
    /* Initiator: its Request. Octets. */
    size_t (*request)(const struct fake_device *d, uint8_t *buf);
    /* Responder: what came in one segment, which is to be a whole Request. */
    struct fake_result (*hear_request)(const struct fake_device *d, const uint8_t *buf, size_t len);
    /* Initiator: what came, beginning with the Reply; all that came before it has sent its first FPDU. */
    struct fake_result (*hear_reply)(const struct fake_device *d, const uint8_t *buf, size_t len);
};

extern const struct fake_device fake_devices[];
extern const size_t fake_devices_n;
/* The one of that name. */
const struct fake_device *fake_device(const char *name);

#endif
