/* The object from which the addresses of an endpoint's operations are measured. */
#include "core/endpoint.h"

const char endpoint_anchor = 0;
