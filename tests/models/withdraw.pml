/*
 * A Hello that is withdrawn while it is answered, on one host: core/negotiate/negotiate.c, in_peek(), decline(), accept_now(),
 * accept_late(), in_naked(), in_hello(), in_withdrawn(), in_late() and negotiate_withdraw(); negotiate_mpa.c for an HWDR that has crossed the
 * HACK. The Request goes with the HELO, the Reply with the HACK. A symbol is a whole frame, or an octet of a program: one octet each way
 * after the decision, and one of a server that speaks first.
 *
 * switches: the initiator may switch late (HELLO_FLAG_SWITCH). declines: a rule or a call at the responder wants the connection plain.
 * Holds: no program reads a frame of ours, no endpoint an octet of a program where a frame has to be; nothing waits for ever; in the end
 * nothing is left in between, and each program has its octets.
 * PLANTED: an initiator that has withdrawn does not look for the answer.
 */
mtype = { HELO, HWDR, HACK, HNAK, HSWI, FPDU, OCTET };

chan to_server = [6] of { mtype };
chan to_client = [6] of { mtype };
byte server_got, client_got, server_said;
bit switches, declines;

active proctype initiator()
{
    mtype m;
    byte kept; /* octets in front of the answer */
    bit spoke;
    if :: switches = 0 :: switches = 1 fi;
    to_server!HELO;
    /* NEGOTIATE_HELLO */
    do
    :: to_client?HACK -> to_server!FPDU; goto upgraded
    :: to_client?HNAK -> goto plain
    :: !switches && to_client?[OCTET] -> to_client?OCTET; kept++
    :: switches && to_client?[OCTET] -> goto plain /* REASON_SPOKE_FIRST */
    :: to_server!HWDR -> break /* negotiate_withdraw: the program waits no longer */
    od;
    if
    :: switches -> /* NEGOTIATE_LATE: the server's first symbol tells */
        if :: spoke = 1; to_server!OCTET :: spoke = 0 fi;
        if
        :: to_client?HACK -> to_server!HSWI; to_server!FPDU; goto upgraded
        :: to_client?HNAK
        :: to_client?[OCTET]
        :: !spoke -> spoke = 1; to_server!OCTET;
            if
            :: to_client?HACK -> to_server!HSWI; to_server!FPDU; goto upgraded
            :: to_client?HNAK
            :: to_client?[OCTET]
            fi
        fi
    :: !switches -> /* NEGOTIATE_WITHDRAWN: the answer, whatever it is, is taken out of the octets */
#ifndef PLANTED
        do
        :: to_client?OCTET -> kept++
        :: to_client?HACK -> break
        :: to_client?HNAK -> break
        od
#else
        skip
#endif
    fi;
plain:
    if :: !spoke -> to_server!OCTET :: spoke -> skip fi;
    client_got = kept;
    do
    :: client_got == 1 + server_said -> break
    :: to_client?m -> assert(m == OCTET); client_got++
    od;
    goto over;
upgraded:
    client_got = kept;
    to_client?m;
    assert(m == FPDU);
    client_got++;
over:
    skip
}

active proctype responder()
{
    mtype m;
    if :: declines = 0 :: declines = 1 fi;
    if :: skip :: server_said = 1; to_client!OCTET fi;
    to_server?HELO;
    /* NEGOTIATE_PEEK */
    if
    :: declines || (switches && server_said) -> /* decline() */
        if :: switches && server_said :: else -> to_client!HNAK fi;
        goto naked
    :: else
    fi;
    to_client!HACK;
    if
    :: switches && to_server?[HWDR] -> to_server?HWDR; goto late
    :: skip /* accept_now */
    fi;
    to_server?m;
    if
    :: m == FPDU -> server_got++; to_client!FPDU; goto over
    :: m == HWDR && switches -> goto late
    :: m == HWDR && !switches -> goto plain
    :: else -> assert(false)
    fi;
late: /* NEGOTIATE_DONE: FPDUs go out; what comes in is the program's up to the HSWI */
    to_client!FPDU;
    do
    :: to_server?OCTET
    :: to_server?HSWI -> break
    od;
    to_server?m;
    assert(m == FPDU);
    server_got++;
    goto over;
naked: /* NEGOTIATE_NAKED: an HWDR may follow */
    if
    :: to_server?HWDR
    :: to_server?[OCTET]
    fi;
plain:
    to_client!OCTET;
    to_server?m;
    assert(m == OCTET);
    server_got++;
over:
    skip
}

/* When nothing moves any more. */
active proctype judge()
{
    timeout;
    assert(empty(to_server) && empty(to_client));
    assert(server_got == 1 && client_got >= 1)
}
