/*
 * What an endpoint's operations are measured from.
 */
#include "core/endpoint.h"

const char endpoint_anchor = 0;
