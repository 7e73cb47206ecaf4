/* The list of socket options, to be looked up. */
#include "preload/conn/options.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#define KEY(level, name) ((uint64_t)(uint32_t)(level) << 32 | (uint32_t)(name))

#define PLACE(level, name, what, marks, reason, refused, text) AT_##name,
enum { AT_NONE, OPTION_LIST(PLACE) };

#define ROW(level, name, what, marks, reason, refused, text) \
    [AT_##name] = { OPTION_##what, marks, REASON_##reason, refused },
static const struct option table[] = { [AT_NONE] = { .what = OPTION_NONE }, OPTION_LIST(ROW) };

/* (A switch: it is asked for each option that a program sets or reads.) */
static unsigned place_of(int level, int name)
{
#define FOUND(l, n, what, marks, reason, refused, text) \
    case KEY(l, n):                                     \
        return AT_##n;
    switch (KEY(level, name)) {
        OPTION_LIST(FOUND)
    default:
        return AT_NONE;
    }
}

struct option option_of(int level, int name)
{
    return table[place_of(level, name)];
}
