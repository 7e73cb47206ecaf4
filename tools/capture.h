/* A capture of what goes over this host's TCP connections, by Wireshark's dumpcap, which may have rights that we have not. */
#ifndef SW_TOOLS_CAPTURE_H
#define SW_TOOLS_CAPTURE_H

#include <signal.h>
#include <sys/types.h>

struct capture {
    const char *file, *log; /* the packets, in pcapng; what dumpcap says */
    pid_t dumpcap;
    int listener; /* a packet with known bytes goes to it over loopback: what came before it is in the file, too */
    int changes;  /* inotify, of the file */
    const volatile sig_atomic_t *stopped; /* not 0: no more waiting, exit with 128 and this */
};

/* Begins one. filter: a capture filter, as "port 6379". The files exist, and are empty. Exits with a message. */
void capture_begin(struct capture *c, const char *filter);
/* Ends it: what was sent before is in the file. Returns how many packets the kernel had no room for. Exits with a message. */
unsigned long capture_end(struct capture *c);

#endif
