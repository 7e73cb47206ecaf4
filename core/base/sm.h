/*
 * Checked state tables: a state machine is an enum, a name and a bit set of legal successors for
 * each state, and one move function that checks and traces.
 */
#ifndef SW_BASE_SM_H
#define SW_BASE_SM_H

#include <stdint.h>

#include "core/base/fault.h"
#include "core/base/probe.h"
#include "core/base/trace.h"

struct sm_state {
    const char *name;
    uint32_t next; /* bit n: a move to state n is legal */
};

#define SM_TO(s) (1u << (s))

/* Moves *state to `to`; an illegal move is an internal error (SW_CHECK). `who` is the object's name in the log. */
static inline void sm_move(const struct sm_state *table, const char *machine, const void *who, uint8_t *state,
                           uint8_t to)
{
    SW_CHECK(table[*state].next & SM_TO(to), "%s %p: illegal move %s -> %s", machine, who, table[*state].name,
             table[to].name);
    trace_debug("%s %p: %s -> %s", machine, who, table[*state].name, table[to].name);
    fault_note_move(machine, who, table[*state].name, table[to].name);
    PROBE4(state_move, machine, who, table[*state].name, table[to].name);
    *state = to;
}

#endif
