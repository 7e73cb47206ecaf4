/*
 * What to do about each reason code; its meaning is core/base/reason.h's. scripts/reasons writes both into sockwarp(7),
 * so that these texts are plain sentences without markup.
 *
 * (They are here and not in core/, so that the library that programs load does not contain them.)
 */
#include "tools/explain.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/reason.h"

#define TEXT_COLUMNS 72

/* (No default: the compiler rejects a code that is added to the list without a text here.) */
static const char *advice(enum reason reason)
{
    switch (reason) {
    case REASON_NONE:
        return "Nothing: the program has not used the connection yet, or it ended before it did.";
    case REASON_UPGRADED:
        return "Nothing: this is what is wanted.";
    case REASON_POLICY:
        return "If the connection should be upgraded, change the rule that says off, or put one that says "
               "auto before it; the first rule that matches decides. `sockwarp check ADDRESS:PORT` names it.";
    case REASON_NO_LOCAL_SHIM:
        return "Start the server under sockwarp too; a service by `sockwarp enable UNIT`, which takes effect when the "
               "service is restarted. A server that runs already cannot be switched. For a local forwarder whose "
               "far end runs sockwarp, add hello=always to the rule.";
    case REASON_CACHED_PLAIN:
        return "Nothing if the peer does not run sockwarp. If it does by now, it is asked again after "
               "SOCKWARP_VERDICT_TTL_S seconds; to ask it at once, remove /dev/shm/sockwarp-UID/plain.1 and start "
               "the client anew.";
    case REASON_SELF:
        return "A process that talks to itself gains nothing by it. For trying it, add self=on to the rule.";
    case REASON_HELLO_TIMEOUT:
        return "If the server does not run sockwarp, add a rule 'connect ADDRESS off' so that its first "
               "client need not wait. If it does, it accepts late or the path is slow: raise "
               "SOCKWARP_HELLO_TIMEOUT_MS.";
    case REASON_HELLO_GARBAGE:
        return "The server does not run sockwarp, or something between answers for it (a proxy, a "
               "firewall). Start it under sockwarp, or add a rule 'connect ADDRESS off'.";
    case REASON_HELLO_CLOSED:
        return "As a rule the server does not run sockwarp. Start it there, or add a rule 'connect ADDRESS "
               "off' if it should not be asked. If it does run it, look whether a proxy or firewall "
               "between ends connections whose protocol it does not know.";
    case REASON_HELLO_NAK:
        return "The peer runs sockwarp and has a reason of its own: look at its statistics, or run it with "
               "--explain. Often its rules do not cover the connection.";
    case REASON_PEER_PLAIN:
        return "Start the client under sockwarp too, with a rule that covers this server.";
    case REASON_SPOKE_FIRST:
        return "Nothing if the client does not run sockwarp. If it does, the server's program spoke or read "
               "before the client's question arrived: this depends on timing and may differ next time.";
    case REASON_MPA_FAILED:
        return "The peer said yes and then did not keep to the protocol, or was gone. Compare the versions "
               "at both ends; if it comes again, report it with SOCKWARP_LOG=debug of both ends.";
    case REASON_MPA_REJECTED:
        return "The peer refuses by its own settings: compare both ends' rules (transport, startup, "
               "dialect).";
    case REASON_STD_FD:
        return "Nothing: such connections are left alone from the beginning. What is upgraded before it is moved "
               "to these descriptors goes on.";
    case REASON_SHARED_FD:
        return "Nothing: it depends on the moment. A program that does so each time keeps these "
               "connections plain.";
    case REASON_FASTOPEN:
        return "Switch TCP Fast Open off in the program if the connection should be upgraded.";
    case REASON_ZEROCOPY:
        return "Bring the peer's sockwarp up to date; this version upgrades such sockets.";
    case REASON_ULP:
        return "Nothing: kernel TLS and sockwarp exclude each other on one connection. Switch kernel TLS off "
               "in the program to choose sockwarp.";
    case REASON_MPTCP:
        return "Run the program without Multipath TCP (mptcpize, GODEBUG=multipathtcp=0 and the like) if "
               "the connection should be upgraded.";
    case REASON_OWN_URING:
        return "Switch io_uring for sockets off in the program if it has such a setting (for instance "
               "UV_USE_IO_URING=0 for libuv), or leave these connections plain.";
    case REASON_EPOLL_KIND:
        return "Nothing: such a program passes by the C library. Give it an off rule to save the "
               "question.";
    case REASON_URGENT:
        return "Nothing: urgent data that is sent first keeps a connection plain.";
    case REASON_NO_MEMORY:
        return "Raise the limit of open files (ulimit -n, LimitNOFILE=) and that of memory, or the space "
               "of the container; later connections are tried again.";
    case REASON_TRANSPORT:
        return "Let the rules of both ends have a transport in common; without transport= in either rule "
               "they have iwarp.";
    case REASON_NOT_CONNECTED:
        return "The connection itself failed: look at the address, the server and the path, as without "
               "sockwarp.";
    case REASON_STDIO:
        return "Told by peers of an older version: bring them up to date. This version carries such streams.";
    case REASON_EXEC:
        return "Nothing: what is executed while the two ends negotiate takes the connection over as it "
               "is.";
    case REASON_PEER_LIMIT:
        return "Compare the versions at both ends and their rules (ird, ord, ring, fpdu).";
    case REASON_OFF:
        return "Told by a peer in which sockwarp is switched off: look at its program's standard error for the "
               "setting that could not be read, or for the fault.";
    case REASON_CLOSED:
        return "Nothing: one of the programs closed the connection at once, such as one that only looks "
               "whether a port is open.";
    case REASON_WITHDRAWN:
        return "A server on another host answers with the first bytes that it sends. If it sends none, add hello=always "
               "to the client's rule: then connect() waits for the answer. Otherwise the server accepts too late. The "
               "default startup waits for that; with transport=verbs, startup=separate or dialect=rtr-frame, raise "
               "SOCKWARP_HELLO_TIMEOUT_MS.";
    case REASON_SANDBOX:
        return "Nothing: a program that filters its own system calls keeps what was upgraded before, and "
               "its later connections are plain. Let it connect before, or switch its filter off.";
    case REASON_DEVICE_NONE:
        return "Look with `sockwarp check` which devices and libraries there are: the driver is to be "
               "loaded, and libibverbs and librdmacm installed with the provider of the device.";
    case REASON_DEVICE_ADDRESS:
        return "Use an address of the interface that the device belongs to; `sockwarp check ADDRESS` says "
               "which device leads there.";
    case REASON_DEVICE_PEER:
        return "Give the peer a rule with transport=verbs for this connection; if it has one, it has no "
               "device for this address.";
    case REASON_DEVICE_FAILED:
        return "Look whether the devices reach each other (rping, ibv_rc_pingpong) and whether a firewall "
               "is between; the kernel's log may say more.";
    case REASON_DEVICE_TIMEOUT:
        return "As for device-failed; or raise SOCKWARP_HELLO_TIMEOUT_MS where it only takes long.";
    case REASON_DEVICE_FORKED:
        return "Let the program make its connections after it forks, or leave the device out of the rule "
               "for it. The connection is upgraded in software all the same.";
    case REASON_DEVICE_MEMORY:
        return "Raise the limit of locked memory (ulimit -l, LimitMEMLOCK=): each connection takes up to "
               "0.9 MB. `sockwarp check` says for how many it is enough.";
    case REASON_DEVICE_KIND:
        return "iWARP goes with iWARP and RoCE with RoCE; an end without a device can face an iWARP one "
               "only. The connection is upgraded in software all the same.";
    case REASON_STAMPS:
        return "Nothing: a program that asks for timestamps gets those of TCP. Switch them off in the program "
               "if the connection should be upgraded.";
    case REASON_UNMARKED:
        return "Start the server under sockwarp too. If it runs under it, its segment size may be its own, or be "
               "changed on the way, or it may have had clients of its own host only: then this rule's ask=always asks.";
    case REASON_DEFER_ACCEPT:
        return "Nothing: a Hello would be taken for the client's first bytes. Switch the option off in the server "
               "(nginx: without deferred; Apache: AcceptFilter http none) if its connections should be upgraded.";
    case REASON_DELAYED_ACK:
        return "Nothing: a program that switches TCP_QUICKACK off before it connects may want to reset the connection "
               "before the server's program sees it (HAProxy's health checks); a Hello would show it to that program.";
    case REASON_BACKLOG_FULL:
        return "The server's program accepts more slowly than clients connect. Let it accept faster, or give listen() a "
               "longer backlog (net.core.somaxconn bounds it). Connections made when there is room are upgraded.";
    case REASON_FILTER:
        return "Nothing: the program has the kernel drop segments by what is in them, and is meant to see its own. Take the "
               "filter away before the connection is made if it should be upgraded.";
    case REASON_VERSION:
        return "Install the same version of sockwarp at both ends: sockwarp --version says which one is there.";
    }
    return NULL;
}

static const enum reason list[] = {
#define X(sym, num, name, text) REASON_##sym,
    REASON_LIST(X)
#undef X
};

/* "17" or "zerocopy": the reason, or -1. */
static int lookup(const char *code)
{
    bool number = code[0] != '\0' && code[strspn(code, "0123456789")] == '\0' && strlen(code) < 6;

    for (size_t i = 0; i < SW_ARRAY_LEN(list); i++)
        if (number ? atoi(code) == (int)list[i] : strcmp(code, reason_name(list[i])) == 0)
            return (int)list[i];
    return -1;
}

/* Prints words from column `indent` on, in lines that end before TEXT_COLUMNS. */
static void print_filled(const char *text, int indent)
{
    int column = 0;

    while (*text != '\0') {
        int len = (int)strcspn(text, " ");

        if (column > 0 && column + 1 + len > TEXT_COLUMNS) {
            putchar('\n');
            column = 0;
        }
        column += printf("%*s%.*s", column > 0 ? 1 : indent, "", len, text);
        text += len;
        text += strspn(text, " ");
    }
    putchar('\n');
}

static void print_one(enum reason reason)
{
    printf("%s (%u): %s\n", reason_name(reason), (unsigned)reason, reason_text(reason));
    print_filled(advice(reason), 4);
}

int explain_print(char *const *codes, int count, const char **unknown)
{
    for (int i = 0; i < count; i++)
        if (lookup(codes[i]) < 0) {
            *unknown = codes[i];
            return -EINVAL;
        }
    for (int i = 0; i < count; i++)
        print_one((enum reason)lookup(codes[i]));
    for (size_t i = 0; count == 0 && i < SW_ARRAY_LEN(list); i++)
        print_one(list[i]);
    return 0;
}
