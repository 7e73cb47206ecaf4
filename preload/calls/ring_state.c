/*
 * What is known of the program's own rings, for code that only asks.
 */
#include "preload/calls/ring.h"

_Atomic bool ring_ever, ring_sockets, ring_files;
_Atomic unsigned ring_live;
