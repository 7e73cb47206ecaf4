/*
 * Naps over shared memory: core/transport/shm.c, nap(), wake() and sleeps() with shm_nap_rx(), shm_flush(), shm_nap_tx() and shm_tell().
 * One side posts messages into a ring of two, and sleeps while there is no room; the other uses them up, and sleeps while there are none.
 * Stores wait in a buffer of the processor, in their order, and a fence waits until it is empty, as x86 has it.
 *
 * Holds: nobody sleeps for ever (no invalid end state); a bell is rung once for a nap, and only for one that was said.
 * PLANTED: nap() looks again without a fence: what it says may still wait in the buffer while the other side looks.
 */
#define MESSAGES 4
#define ROOM 2

/* What is in memory: what the other side sees. */
byte tail, head, nap_rx, nap_tx;
bit bell_rx, bell_tx;
byte rings_rx, rings_tx, naps_rx, naps_tx;

/* Stores under way, of the sender and of the reader: a word's number and its value. */
#define TAIL 0
#define NAP_TX 1
#define HEAD 2
#define NAP_RX 3
chan sender_stores = [3] of { byte, byte };
chan reader_stores = [3] of { byte, byte };

active proctype memory()
{
    byte word, value;
    end: do
    :: atomic { sender_stores?word,value -> if :: word == TAIL -> tail = value :: else -> nap_tx = value fi; word = 0; value = 0 }
    :: atomic { reader_stores?word,value -> if :: word == HEAD -> head = value :: else -> nap_rx = value fi; word = 0; value = 0 }
    od
}

/* sleeps(), behind a store */
inline look(stores, nap_word, seen, rung, bell, rings)
{
    empty(stores); /* the fence */
    seen = nap_word;
    if
    :: (seen & 1) && seen != rung -> rung = seen; atomic { bell = 1; rings++ }
    :: else -> skip
    fi;
    seen = 0
}

inline say_nap(stores, word, now, naps)
{
    now = (now | 1) + 2;
    atomic { stores!word,now; naps++ };
#ifndef PLANTED
    empty(stores)
#endif
}

inline say_awake(stores, word, now)
{
    now++;
    stores!word,now
}

active proctype sender()
{
    byte at, seen, rung, now;
    do
    :: at == MESSAGES -> break
    :: at < MESSAGES ->
        if
        :: at - head < ROOM -> /* post, shm_flush() */
            at++;
            sender_stores!TAIL,at;
            look(sender_stores, nap_rx, seen, rung, bell_rx, rings_rx)
        :: at - head == ROOM -> /* shm_nap_tx() */
            say_nap(sender_stores, NAP_TX, now, naps_tx);
            if
            :: at - head < ROOM -> skip
            :: at - head == ROOM -> atomic { bell_tx -> bell_tx = 0 }
            fi;
            say_awake(sender_stores, NAP_TX, now)
        fi
    od
}

active proctype reader()
{
    byte at, seen, rung, now;
    do
    :: at == MESSAGES -> break
    :: at < MESSAGES ->
        if
        :: tail != at -> /* poll, release, shm_tell() */
            at++;
            reader_stores!HEAD,at;
            look(reader_stores, nap_tx, seen, rung, bell_tx, rings_tx)
        :: tail == at -> /* shm_nap_rx() */
            say_nap(reader_stores, NAP_RX, now, naps_rx);
            if
            :: tail != at -> skip
            :: tail == at -> atomic { bell_rx -> bell_rx = 0 }
            fi;
            say_awake(reader_stores, NAP_RX, now)
        fi
    od
}

active proctype judge()
{
    end: do
    :: atomic { rings_rx > naps_rx || rings_tx > naps_tx -> assert(false) }
    od
}
