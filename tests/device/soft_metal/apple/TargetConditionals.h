// What metal-cpp wants of macOS's header of this name, for Linux.
#pragma once
#define TARGET_OS_OSX 1
#define TARGET_OS_MAC 1
