/* The forms in which `sockwarp stat` writes what it has read. */
#ifndef SW_TOOLS_STAT_TEXT_H
#define SW_TOOLS_STAT_TEXT_H

#include "tools/board.h"

/* Each writes to standard output. 0 or -ENOMEM. */
int stat_table(const struct boards *b) SW_MUST;
int stat_totals(const struct boards *b) SW_MUST;
int stat_json(const struct boards *b) SW_MUST;
/* For node_exporter's textfile collector, and other readers of OpenMetrics 1.0. */
int stat_openmetrics(const struct boards *b) SW_MUST;

#endif
