// A parallel loop whose items may throw, with a word to the caller now and then.
#pragma once

#include <cstddef>
#include <functional>

namespace lily {

/// Calls work(item, thread) for each item in [0, items), thread in [0, threads). The first exception ends the loop and
/// is thrown from here. `done(item)` is called from the calling thread for items that are finished, in order.
void parallel_items(std::size_t items, int threads, const std::function<void(std::size_t, std::size_t)>& work,
                    const std::function<void(std::size_t)>& done);

}  // namespace lily
