/* The table of reason codes, as text; see reason.h. No standard: the numbers are sockwarp's own (HelloNak). */
#include "core/base/reason.h"

const char *reason_name(unsigned reason)
{
    switch (reason) {
#define X(sym, num, name, text) \
    case num:                   \
        return name;
        REASON_LIST(X)
#undef X
    default:
        return "unknown";
    }
}

const char *reason_text(unsigned reason)
{
    switch (reason) {
#define X(sym, num, name, text) \
    case num:                   \
        return text;
        REASON_LIST(X)
#undef X
    default:
        return "a code this version does not know";
    }
}
