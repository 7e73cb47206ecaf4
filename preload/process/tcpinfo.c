/* What the kernel knows of a TCP socket. */
#include "preload/process/tcpinfo.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "preload/process/real.h"
#include "preload/process/sandbox.h"
#include "preload/process/shortage.h"

/* <netinet/tcp.h> has these, but an old struct tcp_info; it cannot be included together with <linux/tcp.h>. */
enum { TCP_TIME_WAIT = 6, TCP_CLOSE = 7, TCP_CLOSE_WAIT = 8, TCP_LAST_ACK = 9, TCP_CLOSING = 11 };

int tcpinfo_state(int fd)
{
    struct tcp_info info;
    socklen_t len = sizeof(info);
    return DESPITE_SHORTAGE(REAL(getsockopt)(fd, IPPROTO_TCP, TCP_INFO, &info, &len)) == 0 ? info.tcpi_state : -1;
}

bool tcpinfo_peer_closed(int fd)
{
    return tcpinfo_state(fd) == TCP_CLOSE_WAIT;
}

/* False: fd is no TCP socket, or the program's seccomp filter forbids the question. */
static bool ask(int fd, struct tcp_info *info)
{
    socklen_t len = sizeof(*info);
    memset(info, 0, sizeof(*info)); /* (older kernels return less) */
    return fd >= 0 && DESPITE_SHORTAGE(sandbox_getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &len)) == 0;
}

bool tcpinfo_totals(int fd, uint64_t *rx, uint64_t *tx)
{
    struct tcp_info info;
    if (!ask(fd, &info))
        return false;
    /* The peer's FIN has a sequence number too. After a reset the count is one too small. */
    bool fin = info.tcpi_state == TCP_CLOSE || info.tcpi_state == TCP_CLOSE_WAIT || info.tcpi_state == TCP_LAST_ACK ||
               info.tcpi_state == TCP_CLOSING || info.tcpi_state == TCP_TIME_WAIT;
    *rx = info.tcpi_bytes_received - (fin && info.tcpi_bytes_received > 0);
    /* A disconnect, as behind a connect() that has failed, begins the numbers anew, further up than what was sent. */
    bool anew = info.tcpi_state == TCP_CLOSE && info.tcpi_segs_out == 0;
    /* Retransmissions are counted in bytes_sent but not in what was written. */
    *tx = info.tcpi_bytes_sent - info.tcpi_bytes_retrans + (anew ? 0 : info.tcpi_notsent_bytes);
    return true;
}

int tcpinfo_queued(int fd)
{
    int n = 0;
    return DESPITE_SHORTAGE(REAL(ioctl)(fd, SIOCINQ, &n)) == 0 ? n : -1;
}

bool tcpinfo_taken(int fd, uint64_t *taken, uint64_t *tx)
{
    uint64_t rx = 0, before;
    int queued = 0;
    bool known = tcpinfo_totals(fd, &rx, tx);
    do {
        before = rx;
        known = known && (queued = tcpinfo_queued(fd)) >= 0 && tcpinfo_totals(fd, &rx, tx);
    } while (known && rx != before); /* bytes have arrived meanwhile */
    *taken = known && rx > (uint64_t)queued ? rx - (uint64_t)queued : 0;
    return known;
}

void tcpinfo_reset(int fd)
{
    REAL(connect)(fd, &(struct sockaddr){ .sa_family = AF_UNSPEC }, sizeof(struct sockaddr));
}

struct tcpinfo_input tcpinfo_input_of(int fd)
{
    struct tcp_info info;
    (void)ask(fd, &info); /* (zeros, if not) */
    return (struct tcpinfo_input){ .octets = info.tcpi_bytes_received, .segments = info.tcpi_data_segs_in };
}

bool tcpinfo_acked_all(int fd)
{
    struct tcp_info info;
    /* (An initiator's SYN is acknowledged too; a frame is longer than that one byte.) */
    return ask(fd, &info) &&
           info.tcpi_bytes_acked >= info.tcpi_bytes_sent - info.tcpi_bytes_retrans + info.tcpi_notsent_bytes;
}

bool tcpinfo_lacks(int fd, uint64_t octets)
{
    struct tcp_info info;
    return ask(fd, &info) && info.tcpi_bytes_acked < octets;
}

uint64_t tcpinfo_rate(int fd)
{
    struct tcp_info info;
    return ask(fd, &info) && info.tcpi_pacing_rate > 0 ? info.tcpi_pacing_rate : UINT64_MAX;
}

#define STAMPS_LEN 12u /* RFC 7323: timestamps, with padding */

bool tcpinfo_segment(int fd, struct tcpinfo_segment *out)
{
    struct tcp_info info;
    if (!ask(fd, &info))
        return false;
    out->octets = info.tcpi_snd_mss;
    out->options_len = (info.tcpi_options & TCPI_OPT_TIMESTAMPS) ? STAMPS_LEN : 0;
    out->path_mtu = info.tcpi_pmtu;
    return true;
}

size_t tcpinfo_emss(int fd)
{
    int mss = 0;
    socklen_t len = sizeof(mss);
    if (sandbox_getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &mss, &len) < 0 || mss <= 0)
        mss = 536; /* every host accepts at least this: RFC 9293 section 3.7.1 */
    return (size_t)mss;
}
