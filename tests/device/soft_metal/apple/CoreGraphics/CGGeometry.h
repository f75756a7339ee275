// What metal-cpp wants of macOS's header of this name, for Linux.
#pragma once
typedef double CGFloat;
struct CGSize {
  CGFloat width, height;
};
struct CGRect {
  CGFloat x, y, width, height;
};
