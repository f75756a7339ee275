// What metal-cpp wants of macOS's header of this name, for Linux.
#pragma once
typedef struct CGColorSpace* CGColorSpaceRef;
