// What metal-cpp wants of macOS's header of this name, for Linux.
#pragma once
#include "runtime.h"
extern "C" {
void objc_msgSend(void);
void objc_msgSend_fpret(void);
void objc_msgSend_stret(void);
}
