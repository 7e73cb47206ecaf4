/* sockwarp stat: the connections of processes under sockwarp, while they go on. */
#ifndef SW_TOOLS_STAT_H
#define SW_TOOLS_STAT_H

#include "core/base/must.h"

/* argv[0] is the command's name. The exit status; may exit by itself. */
int stat_main(int argc, char **argv) SW_MUST;

#endif
