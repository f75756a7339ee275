// Where the time of a backend's ops goes. Given to the backend when it is made; costs two clock reads per op.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lily {

class Profile {
 public:
  struct Entry {
    std::string name;
    std::int64_t calls = 0;
    double seconds = 0;
    double bytes = 0;       // that the op must read or write in memory: weights, state, KV cache
    double operations = 0;  // multiplications and additions of its matrix products
  };

  /// Times one op from here to the end of the block; `profile` may be nullptr.
  class Scope {
   public:
    Scope(Profile* profile, std::string_view name, double bytes, double operations)
        : profile_(profile), name_(name), bytes_(bytes), operations_(operations) {
      if (profile_ != nullptr) begin_ = Clock::now();
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() {
      if (profile_ != nullptr) {
        const std::chrono::duration<double> elapsed = Clock::now() - begin_;
        profile_->add(name_, elapsed.count(), bytes_, operations_);
      }
    }

   private:
    using Clock = std::chrono::steady_clock;
    Profile* profile_;
    std::string_view name_;
    double bytes_;
    double operations_;
    Clock::time_point begin_;
  };

  void add(std::string_view name, double seconds, double bytes, double operations);
  void clear() { entries_.clear(); }
  /// In the order of their first call.
  const std::vector<Entry>& entries() const { return entries_; }

  /// A table with one line per op: share of `wall_seconds`, calls, microseconds a call, GB/s, Gop/s; what is not in any
  /// op stands last as "other", so that the lines sum to the wall time.
  std::string table(double wall_seconds) const;

 private:
  std::vector<Entry> entries_;
};

}  // namespace lily
