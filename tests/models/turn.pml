/*
 * A turn: preload/process/turn.c. Two threads take it (turn_take), one takes it briefly (turn_take_brief); each holder may sleep in the
 * kernel and may be killed while it holds it, and the kernel then marks the word (robust mutexes, futex(2)).
 *
 * Holds: one holder at a time; nobody waits for ever (no invalid end state). A thread that is killed after it was woken, and before it has
 * taken the word, takes its wake-up along; that is left out here.
 * PLANTED: turn_give() wakes no thread that waits briefly.
 */
#define N 3
#define BRIEF 2

byte owner, holders;   /* who has it: 0, or number + 1; in the critical section */
bit waiters, died;     /* FUTEX_WAITERS, FUTEX_OWNER_DIED */
bit asleep;            /* turn.asleep */
byte brief;            /* turn.brief */
byte change;           /* turn.change */
bit on_word[N], on_change[N];

/* FUTEX_WAKE of one thread that waits on the word. */
inline wake_one()
{
    if
    :: on_word[0] -> on_word[0] = 0
    :: on_word[1] -> on_word[1] = 0
    :: !on_word[0] && !on_word[1] -> skip
    fi
}

/* changed() */
inline tell()
{
    if
    :: brief > 0 -> atomic { change++; on_change[BRIEF] = 0 }
    :: brief == 0 -> skip
    fi
}

/* taken(): pthread_mutex_trylock */
inline try_it(me, got)
{
    atomic {
        got = 0;
        if
        :: owner == 0 -> owner = me + 1; got = 1; if :: died -> died = 0; asleep = 0 :: !died -> skip fi
        :: owner != 0 -> skip
        fi
    }
}

inline hold(me)
{
    holders++;
    assert(holders == 1);
    if
    :: skip
    :: asleep = 1; tell(); asleep = 0 /* turn_sleep, turn_wake */
    fi;
    if
    :: /* turn_give */
        holders--;
        atomic { owner = 0; if :: waiters -> waiters = 0; wake_one() :: !waiters -> skip fi };
#ifndef PLANTED
        tell()
#endif
    :: /* killed: exit_robust_list */
        atomic { holders--; owner = 0; died = 1; if :: waiters -> wake_one() :: !waiters -> skip fi }
    fi
}

proctype taker(byte me)
{
    bit got, set;
    byte seen;
    try_it(me, got);
    if
    :: got -> skip
    :: !got ->
        do
        :: seen = owner;
            if
            :: seen == 0 -> skip
            :: seen != 0 ->
                /* the compare-exchange and FUTEX_WAIT both need the word as it was seen */
                atomic { set = owner == seen; if :: set -> waiters = 1 :: !set -> skip fi };
                if
                :: set ->
                    atomic { if :: owner == seen && waiters -> on_word[me] = 1 :: else -> skip fi };
                    !on_word[me]
                :: !set -> skip
                fi
            fi;
            try_it(me, got);
            if
            :: got -> break
            :: !got -> skip
            fi
        od;
        waiters = 1
    fi;
    hold(me)
}

proctype brief_taker(byte me)
{
    bit got;
    byte seen;
    try_it(me, got);
    if
    :: got -> skip
    :: !got ->
        brief++;
        do
        :: seen = change;
            try_it(me, got);
            if
            :: got -> break
            :: !got && asleep -> break /* -EBUSY */
            :: !got && !asleep ->
                atomic { if :: change == seen -> on_change[me] = 1 :: else -> skip fi };
                /* BRIEF_NS: it looks again where the kernel has told it nothing, as when a holder was killed. */
                if
                :: !on_change[me] -> skip
                :: died -> on_change[me] = 0
                fi
            fi
        od;
        brief--
    fi;
    if
    :: got -> hold(me)
    :: !got -> skip
    fi
}

init
{
    atomic { run taker(0); run taker(1); run brief_taker(BRIEF) }
}
