/* sockwarp trace PROGRAM: runs it, and shows the frames that its connections have carried. */
#ifndef SW_TOOLS_TRACE_H
#define SW_TOOLS_TRACE_H

#include "core/base/must.h"

struct trace {
    const char *pcap;   /* --pcap, NULL = not given: the packets of its connections go there, and nothing is shown */
    const char *filter; /* --filter, NULL = not given: of the host's TCP only this is captured */
    char *folder, *stats, *packets, *log;
};

/* Makes the files that the program writes its statistics to, and so on. Exits with a message. */
void trace_open(struct trace *t);
/*
 * Runs the program, whose environment is ours, captures what goes over TCP meanwhile, and shows what its connections
 * carried. The exit status: the program's; 128 + its number if a signal ended it; EXIT_REFUSED if that is 0 and nothing
 * can be shown. Exits with a message if it cannot capture; then the program has not run.
 */
int trace_run(struct trace *t, char **argv) SW_MUST;

#endif
