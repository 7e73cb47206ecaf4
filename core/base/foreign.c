/* See foreign.h. */
#include "core/base/foreign.h"

__thread unsigned foreign_depth;
