// What a kernel that is compiled for the host asks of the emulator: who am I, and meet the other threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lily::emulated {

struct Position {
  unsigned x = 0, y = 0, z = 0;
};

/// A place in a kernel's source: threads that meet must meet at the same one.
struct Where {
  const char* file = nullptr;
  int line = 0;
};

/// One GPU thread's indices.
struct Lane {
  unsigned thread = 0;     // in its threadgroup
  unsigned simdgroup = 0;  // in its threadgroup
  unsigned lane = 0;       // in its simdgroup
  unsigned threads = 0;    // of a threadgroup
  Position group;          // of its threadgroup in the grid
  Position groups;         // of the grid
};

/// The GPU thread that runs now. A call, not a variable: ThreadSanitizer would take a kernel's look at a host thread's
/// own variable for a race with that thread's birth.
const Lane& current_lane();

/// The running threadgroup's memory for the declaration that `site` identifies; garbage (NaN) at first.
void* threadgroup_memory(const void* site, std::size_t size);

/// All 32 lanes of the simdgroup meet; gives their 32 values by lane, after `reduce` (run once) has had them.
std::uint64_t* exchange(std::uint64_t value, Where where, void (*reduce)(std::uint64_t*) = nullptr);

/// All threads of the threadgroup meet.
void barrier(Where where);

/// From here on the thread may read what earlier dispatches wrote (see ENTRY_PREFETCH in lily.h).
void inputs_ready();

}  // namespace lily::emulated
