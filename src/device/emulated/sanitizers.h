// Tells the sanitizers about fibers. Every function is empty in an ordinary build.
//
// ThreadSanitizer: emulator.cpp itself is compiled without -fsanitize=thread and with LILY_TSAN_FIBERS; each GPU thread
// is then a thread of its own to it, switched to without any ordering, and a Token carries the ordering that GPUs have.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define LILY_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LILY_ASAN 1
#endif
#endif

#ifdef LILY_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef LILY_TSAN_FIBERS
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(const char*, int);
void AnnotateIgnoreReadsEnd(const char*, int);
void AnnotateIgnoreWritesBegin(const char*, int);
void AnnotateIgnoreWritesEnd(const char*, int);
}
#endif

namespace lily::emulated {

/// A happens-before edge: what came before release() is visible after acquire().
struct Token {
  char address[8] = {};
  void release() {
#ifdef LILY_TSAN_FIBERS
    __tsan_release(address);
#endif
  }
  void acquire() {
#ifdef LILY_TSAN_FIBERS
    __tsan_acquire(address);
#endif
  }
};

/// Accesses in its scope are the emulator's own, not the kernel's.
class IgnoreAccesses {
 public:
  IgnoreAccesses() {
#ifdef LILY_TSAN_FIBERS
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
  }
  IgnoreAccesses(const IgnoreAccesses&) = delete;
  IgnoreAccesses& operator=(const IgnoreAccesses&) = delete;
  ~IgnoreAccesses() {
#ifdef LILY_TSAN_FIBERS
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
  }
};

inline void poison([[maybe_unused]] const void* memory, [[maybe_unused]] std::size_t size) {
#ifdef LILY_ASAN
  __asan_poison_memory_region(memory, size);
#endif
}
inline void unpoison([[maybe_unused]] const void* memory, [[maybe_unused]] std::size_t size) {
#ifdef LILY_ASAN
  __asan_unpoison_memory_region(memory, size);
#endif
}

/// A thread of execution as the sanitizers see it: its stack (AddressSanitizer), its clock (ThreadSanitizer).
class SanitizerThread {
 public:
  SanitizerThread() = default;
  SanitizerThread(const SanitizerThread&) = delete;
  SanitizerThread& operator=(const SanitizerThread&) = delete;
  ~SanitizerThread() { forget(); }

  /// The thread that runs now.
  void adopt_current() {
#ifdef LILY_TSAN_FIBERS
    tsan_ = __tsan_get_current_fiber();
    owned_ = false;
#endif
  }
  /// A new thread: nothing that ran before on the same stack is ordered before it.
  void renew([[maybe_unused]] const void* stack, [[maybe_unused]] std::size_t size) {
    forget();
#ifdef LILY_ASAN
    bottom_ = stack;
    size_ = size;
#endif
#ifdef LILY_TSAN_FIBERS
    tsan_ = __tsan_create_fiber(0);
    owned_ = true;
#endif
  }
  /// Goes on as `to` on the same stack (ThreadSanitizer only).
  __attribute__((no_sanitize("thread"))) void become([[maybe_unused]] SanitizerThread& to) {
#ifdef LILY_TSAN_FIBERS
    __tsan_switch_to_fiber(to.tsan_, __tsan_switch_to_fiber_no_sync);
#endif
  }
  /// Just before the switch to `to`. `leaving`: this thread will not run again.
  void switch_to([[maybe_unused]] SanitizerThread& to, [[maybe_unused]] bool leaving = false) {
#ifdef LILY_ASAN
    __sanitizer_start_switch_fiber(leaving ? nullptr : &fake_stack_, to.bottom_, to.size_);
#endif
#ifdef LILY_TSAN_FIBERS
    __tsan_switch_to_fiber(to.tsan_, __tsan_switch_to_fiber_no_sync);
#endif
  }
  /// Just after the switch to this thread from `from`, the first thing that runs.
  void switched_from([[maybe_unused]] SanitizerThread& from) {
#ifdef LILY_ASAN
    __sanitizer_finish_switch_fiber(fake_stack_, &from.bottom_, &from.size_);
    fake_stack_ = nullptr;
#endif
  }

 private:
  void forget() {
#ifdef LILY_TSAN_FIBERS
    if (owned_) __tsan_destroy_fiber(tsan_);
    owned_ = false;
#endif
#ifdef LILY_ASAN
    fake_stack_ = nullptr;
#endif
  }
#ifdef LILY_ASAN
  const void* bottom_ = nullptr;
  std::size_t size_ = 0;
  void* fake_stack_ = nullptr;
#endif
#ifdef LILY_TSAN_FIBERS
  void* tsan_ = nullptr;
  bool owned_ = false;
#endif
};

}  // namespace lily::emulated
