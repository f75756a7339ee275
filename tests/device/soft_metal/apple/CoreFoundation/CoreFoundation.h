// What metal-cpp wants of macOS's header of this name, for Linux.
#pragma once
typedef double CFTimeInterval;
typedef const void* CFTypeRef;
typedef double CGFloat;
