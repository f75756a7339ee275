// The router and the shared expert's gate and up projections in decode.
#include "route_step.h"

using RouteTile8 = LaneTile<8, false>;
using RouteTile4 = LaneTile<4, false>;
using RaggedRouteTile8 = LaneTile<8, true>;
using RaggedRouteTile4 = LaneTile<4, true>;

ENTRY_PREFETCH(route_step_2048, 512, route_step<RouteTile8, RouteTile4, 2048, 16>)
ENTRY_PREFETCH(route_step_any, 128, route_step<RaggedRouteTile8, RaggedRouteTile4, 0, 4>)
