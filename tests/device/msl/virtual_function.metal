// expect: virtual
#include "kernels/lily.h"
struct A {
  virtual int f() { return 1; }
};
