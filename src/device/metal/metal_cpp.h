// Apple's metal-cpp. Its headers miss <cmath>, and its ownership is by hand: what new* and alloc give is taken with
// NS::TransferPtr, everything else belongs to the surrounding AutoreleasePool.
#pragma once

#include <cmath>
#include <functional>
#include <string>
// clang-format off: these need <cmath> before them.
#include <Foundation/Foundation.hpp>
#include <Metal/Metal.hpp>
// clang-format on

namespace lily::metal {

/// Objects that calls in this scope give without a transfer live until its end.
class AutoreleasePool {
 public:
  AutoreleasePool() : pool_(NS::TransferPtr(NS::AutoreleasePool::alloc()->init())) {}

 private:
  NS::SharedPtr<NS::AutoreleasePool> pool_;
};

inline NS::String* to_ns(const std::string& text) {
  return NS::String::string(text.c_str(), NS::UTF8StringEncoding);
}

/// What an NSError says, or "unknown error".
inline std::string describe(const NS::Error* error) {
  return error == nullptr ? "unknown error" : error->localizedDescription()->utf8String();
}

}  // namespace lily::metal
