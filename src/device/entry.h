// A kernel's entry point as the host knows it: what a launch must give, and how to run one GPU thread of it on the CPU.
//
// Everything is read off the kernel's own parameter list, so there is no second list to keep in step:
//   device const T*   a buffer that the kernel reads            Access::kRead
//   device T*         a buffer that it writes (and may read)    Access::kWrite
//   constant T&       a value, copied at the launch             Access::kValue
//   uint, uint3       a builtin such as the thread's index; these stand last and are no arguments
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

namespace lily {

enum class Access : std::uint8_t { kRead, kWrite, kValue };

/// What a buffer's elements are, to those who compare them: a 2-byte class is a bf16 value, other classes are bits. A
/// kernel with atomics may leave the order of its integers to chance.
enum class Element : std::uint8_t { kFloat32, kBFloat16, kBits, kAtomic };

struct Parameter {
  Access access = Access::kRead;
  Element element = Element::kBits;
  std::size_t size = 0;       // of one element, or of the value
  std::size_t alignment = 1;  // of the element's or the value's type
};

struct Entry {
  const char* name = nullptr;
  unsigned threads = 0;  // per threadgroup, a multiple of 32
  std::span<const Parameter> parameters;
  void (*run_thread)(void* const* arguments) = nullptr;  // on the host, inside the emulator
  bool prefetches = false;       // calls wait_for_inputs() itself, after it has asked for weights
  std::size_t large_memory = 0;  // threadgroup memory of LARGE_SHARED: CUDA and the emulator only
};

template <typename T>
inline constexpr bool kIsValue = std::is_lvalue_reference_v<T>&& std::is_const_v<std::remove_reference_t<T>>;
template <typename T>
inline constexpr bool kIsArgument = std::is_pointer_v<T> || kIsValue<T>;

template <typename T>
constexpr Parameter describe_parameter() {
  static_assert(kIsArgument<T>, "a kernel's buffers and values stand before its builtins");
  using Value = std::remove_reference_t<std::remove_pointer_t<T>>;
  const Access access = !std::is_pointer_v<T>    ? Access::kValue
                        : std::is_const_v<Value> ? Access::kRead
                                                 : Access::kWrite;
  constexpr auto element = [] {
    if constexpr (requires { Value::kIsAtomic; }) return Element::kAtomic;
    if constexpr (std::is_same_v<std::remove_cv_t<Value>, float>) return Element::kFloat32;
    return std::is_class_v<Value> && sizeof(Value) == 2 ? Element::kBFloat16 : Element::kBits;
  };
  return {access, element(), sizeof(Value), alignof(Value)};
}

template <typename Function>
struct Signature;

template <typename... P>
struct Signature<void(P...)> {
  static constexpr std::size_t kCount = (std::size_t{kIsArgument<P>} + ... + 0);

  template <std::size_t I>
  using Type = std::tuple_element_t<I, std::tuple<P...>>;

  template <std::size_t... I>
  static constexpr std::array<Parameter, kCount> parameters(std::index_sequence<I...>) {
    return {describe_parameter<Type<I>>()...};
  }
  static constexpr std::array<Parameter, kCount> kParameters = parameters(std::make_index_sequence<kCount>());

  /// Calls the kernel with its arguments; its builtins are default arguments.
  template <typename Kernel>
  static void call(void* const* arguments, Kernel kernel) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      kernel(get<Type<I>>(arguments[I])...);
    }
    (std::make_index_sequence<kCount>());
  }

 private:
  template <typename T>
  static T get(void* argument) {
    if constexpr (std::is_pointer_v<T>) {
      return static_cast<T>(argument);
    } else {
      return *static_cast<std::remove_reference_t<T>*>(argument);
    }
  }
};

/// An entry that remembers its kernel's type: a launch with wrong arguments does not compile.
template <typename Function>
struct TypedEntry : Entry {};

template <typename Function>
constexpr TypedEntry<Function> make_entry(const char* name, unsigned threads, bool prefetches, std::size_t large_memory,
                                          void (*run_thread)(void* const*)) {
  return {{name, threads, Signature<Function>::kParameters, run_thread, prefetches, large_memory}};
}

namespace kernels {
/// Every ENTRY of every file in kernels.h.
std::span<const Entry* const> all_entries();
}  // namespace kernels

}  // namespace lily
