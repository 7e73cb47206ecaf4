/*
 * sockwarp enable UNIT, disable UNIT, enabled: services of systemd that run under sockwarp, by a drop-in of their own
 * below /etc/systemd/system. The vendor's files are never changed, and no service is started or stopped.
 */
#ifndef SW_TOOLS_UNITS_H
#define SW_TOOLS_UNITS_H

#include "core/base/must.h"

/* argv[0] is the command's name. Returns the exit status: 0, EXIT_REFUSED or EXIT_USAGE; may also exit by itself. */
int units_enable(int argc, char **argv) SW_MUST;
int units_disable(int argc, char **argv) SW_MUST;
int units_enabled(int argc, char **argv) SW_MUST;

#endif
