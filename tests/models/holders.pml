/*
 * Who holds a connection when processes fork, execute, close and are killed: preload/process/holders.c: holders_expect_child() before a
 * fork, holders_have_child() and holders_am_child() behind it, holders_no_child(), holders_exec(), holders_take_up(), holders_leave(),
 * strike_dead(). A parent forks a child, which executes another program; the child may be killed between
 * the steps. In the end the dead are struck out (strike_dead), as by the last close. (One that is killed between the two halves of
 * holders_leave() stays counted; that is left out.)
 *
 * Holds: the count is never below the number of living processes that have the connection; when all are gone or dead, striking them
 * out leaves none.
 * PLANTED: holders_have_child() comes without holders_expect_child(): the child is counted by itself when it runs.
 */
#define PARENT 1
#define CHILD 2
#define EXPECTED 3 /* -maker */
#define EXEC 4     /* the child's number with HOLDER_EXEC */
#define PLACES 3

byte n = 1, who[PLACES];
bit dead, has[3];

/* change() */
inline change(from, to, ok)
{
    atomic {
        ok = 1;
        if
        :: who[0] == from -> who[0] = to
        :: who[0] != from && who[1] == from -> who[1] = to
        :: who[0] != from && who[1] != from && who[2] == from -> who[2] = to
        :: else -> ok = 0
        fi
    }
}

inline holds(p, is)
{
    is = who[0] == p || who[1] == p || who[2] == p
}

inline leave(me)
{
    change(me, 0, ok);
    atomic { n--; has[me] = 0 }
}

proctype child()
{
    bit ok, is;
    if :: skip :: goto killed fi;
    /* holders_am_child */
    atomic {
        holds(CHILD, is);
#ifdef PLANTED
        if :: !is -> n++ :: is -> skip fi;
#endif
    };
    if :: !is -> change(EXPECTED, CHILD, ok) :: is -> skip fi;
    if
    :: goto killed
    :: leave(CHILD)
    :: change(CHILD, EXEC, ok); /* holders_exec; then holders_take_up in the next program */
        if :: skip :: goto killed fi;
        holds(CHILD, is);
        if
        :: is -> skip
        :: !is -> change(EXEC, CHILD, ok);
            if
            :: ok -> skip
            :: !ok -> change(EXPECTED, CHILD, ok);
                if
                :: ok -> skip
                :: !ok -> n++; change(0, CHILD, ok)
                fi
            fi
        fi;
        leave(CHILD)
    fi;
    goto over;
killed:
    atomic { dead = 1; has[CHILD] = 0 };
over:
    skip
}

active proctype parent()
{
    bit ok, is;
    who[0] = PARENT;
    has[PARENT] = 1;
#ifndef PLANTED
    n++; /* holders_expect_child */
    change(0, EXPECTED, ok);
#endif
    if
    :: atomic { has[CHILD] = 1; run child() };
        /* holders_have_child */
        atomic { holds(CHILD, is); if :: !is -> change(EXPECTED, CHILD, ok) :: is -> skip fi }
    :: /* the fork failed: holders_no_child */
        change(EXPECTED, 0, ok);
        if :: ok -> n-- :: !ok -> skip fi
    fi;
    leave(PARENT)
}

/* At any time. */
active proctype watch()
{
    end: do
    :: atomic { n < has[PARENT] + has[CHILD] -> assert(false) }
    :: atomic {
            timeout;
            if
            :: dead && (who[0] == CHILD || who[1] == CHILD || who[2] == CHILD || who[0] == EXEC || who[1] == EXEC || who[2] == EXEC) -> n--
            :: else -> skip
            fi;
            assert(n == 0);
            break
        }
    od
}
