// A GPU, or what stands in for one: memory, launches of kernels, and the order between them. It knows nothing of
// models.
//
// Launches are collected and start together at submit(). Between two launches there is a barrier only where the second
// needs what the first wrote, or writes what it used: the launch knows from the kernel's own parameter list what it
// reads and writes. Between two submissions there is always one. At most two submissions are in flight.
//
//   auto device = make_device(DeviceKind::kAuto);
//   auto x = device->allocate(4096);
//   device->dispatch(kernels::zero_words, {.groups = {4}}, x->view<unsigned>(), 1024U);
//   device->wait(device->submit());
//
// What the same launches repeat, record() keeps as a Step: a graph on CUDA, a prepared list elsewhere.
//
// A Device and everything it made are used from one thread at a time. What a user, a file or the GPU causes is a
// lily::Error; a wrong launch is a broken invariant.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/entry.h"
#include "support/error.h"

namespace lily {

enum class DeviceKind { kAuto, kMetal, kCuda, kCpu, kEmulated };

/// "auto", "metal", "cuda", "cpu", "emulated"; throws lily::Error otherwise.
DeviceKind parse_device_kind(std::string_view name);
std::string_view to_string(DeviceKind kind);

class Buffer;

/// `count` values of T, from `offset` bytes into a buffer. Does not keep the buffer alive.
template <typename T>
struct View {
  const Buffer* buffer = nullptr;
  std::size_t offset = 0;
  std::size_t count = 0;

  View part(std::size_t first, std::size_t length) const {
    LILY_CHECK(first <= count && length <= count - first);
    return {buffer, offset + first * sizeof(T), length};
  }
  operator View<const T>() const requires(!std::is_const_v<T>) { return {buffer, offset, count}; }
};

enum class Memory {
  kDevice,  // fastest for the GPU; the host reaches it through Device::read and write
  kShared,  // host() is valid too: what the GPU wrote is there after wait(), what the host wrote before submit()
};

/// Device memory; uninitialised. Outlived by its Device, and by every submission and Step that uses it.
class Buffer {
 public:
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  virtual ~Buffer() = default;

  std::size_t size() const { return size_; }
  /// The host's view of kShared memory, else empty.
  std::span<std::byte> host() const { return {host_, host_ == nullptr ? 0 : size_}; }
  template <typename T>
  std::span<T> host_as() const {
    return {reinterpret_cast<T*>(host_), host_ == nullptr ? 0 : size_ / sizeof(T)};
  }
  template <typename T>
  View<T> view(std::size_t offset = 0) const {
    LILY_CHECK(offset <= size_);
    return {this, offset, (size_ - offset) / sizeof(T)};
  }

 protected:
  Buffer(std::size_t size, std::byte* host) : size_(size), host_(host) {}

 private:
  std::size_t size_;
  std::byte* host_;
};

struct Extent {
  unsigned x = 1, y = 1, z = 1;
};

struct Launch {
  Extent groups;                 // threadgroups in the grid; the entry says how many threads each has
  std::size_t weight_bytes = 0;  // what the launch must read of the weights at least; for the counters alone
};

/// What a list of launches costs; the same on every device.
struct Counters {
  std::uint64_t dispatches = 0;
  std::uint64_t stages = 0;  // runs of launches between barriers: what has to happen one after another
  std::uint64_t weight_bytes = 0;

  Counters& operator+=(const Counters& other);
  bool operator==(const Counters& other) const = default;
};
Counters operator-(const Counters& after, const Counters& before);

/// Launches in order, with the barriers between them. Values stand in `values`, each aligned to 16 bytes.
struct CommandList {
  struct Argument {
    const Buffer* buffer = nullptr;  // null: a value
    std::size_t offset = 0;          // into the buffer, or into `values`
    std::size_t size = 0;
  };
  struct Dispatch {
    const Entry* entry = nullptr;
    Extent groups;
    std::size_t first_argument = 0;  // the others follow: entry->parameters.size()
    bool barrier = false;            // before this dispatch
  };
  std::vector<Dispatch> dispatches;
  std::vector<Argument> arguments;
  std::vector<std::byte> values;
  Counters counters;

  std::span<const Argument> arguments_of(const Dispatch& dispatch) const {
    return std::span(arguments).subspan(dispatch.first_argument, dispatch.entry->parameters.size());
  }
};

/// Recorded launches, to be submitted any number of times. Outlived by its Device.
class Step {
 public:
  explicit Step(CommandList commands) : commands_(std::move(commands)) {}
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  virtual ~Step() = default;
  const Counters& counters() const { return commands_.counters; }
  const CommandList& commands() const { return commands_; }

 private:
  CommandList commands_;
};

struct DeviceInfo {
  DeviceKind kind = DeviceKind::kEmulated;
  std::string name;               // "Apple M4 Max", "NVIDIA H200"
  std::size_t memory_budget = 0;  // bytes that may be allocated and mapped in all; Metal: the recommended working set
  bool unified_memory = false;    // map() does not copy
  bool tensor_ops = false;        // Metal 4's tensor operations are in use
};

/// Remembers which bytes were read and written since the last barrier.
class HazardTracker {
 public:
  struct Range {
    const Buffer* buffer = nullptr;
    std::size_t begin = 0;
    std::size_t end = 0;
    bool written = false;
  };
  /// Adds one launch's ranges; true when a barrier has to stand before it.
  bool add(std::span<const Range> ranges);
  void clear() { since_barrier_.clear(); }

 private:
  std::vector<Range> since_barrier_;
};

class Device {
 public:
  using Ticket = std::uint64_t;  // of a submission; they count up from 1

  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;

  // ---- memory ----
  /// Uninitialised. Throws lily::Error when it would not fit into the budget, or into what is free.
  std::unique_ptr<Buffer> allocate(std::size_t bytes, Memory memory = Memory::kDevice);
  /// Memory for kernels to read that has the host's bytes: in place where the device can (the caller keeps them alive
  /// and unchanged) and the bytes' address is a multiple of `alignment`, else as a copy.
  std::unique_ptr<Buffer> map(std::span<const std::byte> bytes, std::size_t alignment = 16);
  /// Copies after everything dispatched so far, for which they wait.
  void write(Buffer& buffer, std::size_t offset, std::span<const std::byte> bytes);
  void read(const Buffer& buffer, std::size_t offset, std::span<std::byte> out);
  std::size_t memory_in_use() const { return *memory_in_use_; }

  // ---- launches ----
  /// Adds a launch. Arguments: a View for each pointer of the kernel, a value for each `constant T&`. A view that the
  /// kernel writes must not overlap any other argument of the launch. Values are at most 4 KiB.
  template <typename... P, typename... A>
  void dispatch(const TypedEntry<void(P...)>& entry, const Launch& launch, const A&... arguments);

  /// The same with arguments as a CommandList has them: for what passes launches on.
  void dispatch(const Entry& entry, const Launch& launch, std::span<const CommandList::Argument> arguments,
                std::span<const std::byte> values);

  /// Starts what was dispatched since the last submit or record. Waits while two submissions are in flight.
  Ticket submit();
  /// Takes the same launches as a Step instead of starting them.
  std::unique_ptr<Step> record();
  Ticket submit(Step& step);
  /// Until the submission, and all before it, are done. Throws lily::Error when the GPU failed in one of them.
  void wait(Ticket ticket);
  /// For everything submitted.
  void wait() { wait(submitted_); }
  bool done(Ticket ticket);

  /// Of everything submitted since the start.
  const Counters& counters() const { return counters_; }

  /// Off: from the next dispatch on each launch waits for the end of the one before it, whether it needs it or not. To
  /// measure what overlapping brings.
  void set_overlap(bool overlap) { overlap_ = overlap; }

 protected:
  Device() = default;

  bool overlap() const { return overlap_; }
  /// Throws when `bytes` more do not fit; the token gives them back when it goes.
  std::shared_ptr<void> reserve(std::size_t bytes, std::string_view what);

  virtual std::unique_ptr<Buffer> do_allocate(std::size_t bytes, Memory memory) = 0;
  virtual std::unique_ptr<Buffer> do_map(std::span<const std::byte> bytes) = 0;
  virtual void do_write(Buffer& buffer, std::size_t offset, std::span<const std::byte> bytes) = 0;
  virtual void do_read(const Buffer& buffer, std::size_t offset, std::span<std::byte> out) = 0;
  virtual std::unique_ptr<Step> do_record(CommandList commands) { return std::make_unique<Step>(std::move(commands)); }
  /// `commands` may be emptied by the caller as soon as it returns.
  virtual void do_submit(const CommandList& commands, Ticket ticket) = 0;
  virtual void do_submit(Step& step, Ticket ticket) { do_submit(step.commands(), ticket); }
  virtual void do_wait(Ticket ticket) = 0;
  virtual bool do_done(Ticket ticket) = 0;

 private:
  void begin_dispatch(const Entry& entry, const Launch& launch);
  void add_view(const Buffer* buffer, std::size_t offset, std::size_t bytes);
  void add_value(const void* value, std::size_t size);
  void end_dispatch();
  void check_argument(const CommandList::Argument& argument, const Parameter& parameter) const;
  CommandList take_commands();
  Ticket next_ticket(const Counters& counters);

  template <typename P, typename A>
  void add_argument(const A& argument) {
    if constexpr (std::is_pointer_v<P>) {
      const View<std::remove_pointer_t<P>> view = argument;
      add_view(view.buffer, view.offset, view.count * sizeof(std::remove_pointer_t<P>));
    } else {
      const std::remove_cvref_t<P> value = argument;
      static_assert(std::is_trivially_copyable_v<std::remove_cvref_t<P>> && sizeof(value) <= 4096);
      add_value(&value, sizeof value);
    }
  }

  CommandList pending_;
  HazardTracker tracker_;
  std::vector<HazardTracker::Range> ranges_;
  Counters counters_;
  bool overlap_ = true;
  Ticket submitted_ = 0;
  Ticket finished_ = 0;
  // Buffers give their bytes back to it when they go.
  std::shared_ptr<std::size_t> memory_in_use_ = std::make_shared<std::size_t>(0);
};

template <typename... P, typename... A>
void Device::dispatch(const TypedEntry<void(P...)>& entry, const Launch& launch, const A&... arguments) {
  using Parameters = Signature<void(P...)>;
  static_assert(sizeof...(A) == Parameters::kCount, "one argument for each buffer and value of the kernel");
  begin_dispatch(entry, launch);
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (add_argument<typename Parameters::template Type<I>>(arguments), ...);
  }
  (std::make_index_sequence<sizeof...(A)>());
  end_dispatch();
}

/// kAuto: Metal, else CUDA, else null (the CPU needs no Device: use CpuOps). kCpu: null. Throws lily::Error when the
/// device asked for is not there, saying why.
std::unique_ptr<Device> make_device(DeviceKind kind);

}  // namespace lily
