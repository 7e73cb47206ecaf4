/*
 * The word of a buffer in which small writes are gathered: preload/conn/coalesce.c, coalesce_put(), shut(), reopen(), coalesce_add() and
 * coalesce_post(). Two threads write octets without the turn; a third holds it, closes the word, sends what is there, and opens it again by
 * a write of its own. A writer whose last compare-exchange fails takes the ordinary way (here: it counts as sent by itself).
 *
 * Holds: an octet that was taken is sent once, and none is written into a buffer that is being sent.
 * PLANTED: a buffer is used again though a writer may still be adding (taken_over is not looked at).
 */
#define NOBODY 0
#define CLOSED 9
#define ROOM 3
#ifdef PLANTED
#define TAKEN_OVER 0
#else
#define TAKEN_OVER taken_over
#endif

byte who = NOBODY, held = 1; /* the word; one octet is in it, which began the gathering */
byte taken = 1, sent;
byte buf[ROOM], want[ROOM]; /* what is there, what has to be there */
bit taken_over, noticed;

proctype writer(byte me)
{
    byte at;
    bit mine;
    byte rounds = 0;
    do
    :: rounds < 2 ->
        rounds++;
        atomic { mine = who == NOBODY && held > 0 && held < ROOM; at = held; if :: mine -> who = me :: !mine -> skip fi };
        if
        :: mine ->
            /* memcpy: a copy that is discarded in the end goes to octets that nobody has */
            buf[at] = me;
            atomic {
                if
                :: who == me && held == at -> who = NOBODY; held = at + 1; taken++; want[at] = me
                :: else -> noticed = 1
                fi
            }
        :: !mine -> skip
        fi
    :: rounds == 2 -> break
    od
}

/* shut(): after some spins the word is closed over a writer's head. */
inline shut(n)
{
    atomic {
        if
        :: who != CLOSED -> taken_over = taken_over || who != NOBODY; who = CLOSED
        :: who == CLOSED -> skip
        fi;
        n = held
    }
}

inline reopen(n)
{
    atomic {
        who = (TAKEN_OVER -> CLOSED : NOBODY);
        held = n
    }
}

proctype sender()
{
    byte n, i;
    byte rounds = 0;
    do
    :: rounds < 3 ->
        rounds++;
        shut(n);
        if
        :: n > 0 -> /* coalesce_post: the word stays closed, without octets */
            i = 0;
            do
            :: i < n -> assert(buf[i] == want[i]); sent++; i++
            :: i == n -> break
            od;
            held = 0
        :: n == 0 && !TAKEN_OVER -> /* coalesce_add, begin(): one octet of the turn's holder */
            buf[0] = 7;
            want[0] = 7;
            taken++;
            reopen(1)
        :: n == 0 && TAKEN_OVER -> /* attach(): another buffer; this one is free when the writer has noticed: slot_claim() */
            if
            :: noticed -> taken_over = 0; noticed = 0
            :: !noticed -> skip
            fi
        fi
    :: rounds == 3 -> break
    od;
    shut(n);
    i = 0;
    do
    :: i < n -> assert(buf[i] == want[i]); sent++; i++
    :: i == n -> break
    od;
    held = 0
}

init
{
    atomic { run writer(1); run writer(2); run sender() };
    _nr_pr == 1;
    assert(taken == sent)
}
