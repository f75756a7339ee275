// expect: virtual
#include "kernels/lily.h"
struct A {
  virtual ~A() {}
};
