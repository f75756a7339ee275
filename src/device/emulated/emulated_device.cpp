#include "device/emulated/emulated_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>

#include "device/emulated/emulator.h"

namespace lily {
namespace {

// Small memory comes from the heap, exact to the byte (AddressSanitizer sees an overrun) and full of NaN; large memory
// from the system, untouched, so that the launches of a model that does not fit here can still be counted.
constexpr std::size_t kLarge = 64 << 20, kLargeUnused = 64 << 10;

class HeapMemory {
 public:
  /// From `large` bytes on the memory comes from the system.
  HeapMemory(std::size_t size, std::size_t large) : size_(size), on_heap_(size < large) {
    if (on_heap_) {
      data_ = static_cast<std::byte*>(::operator new (size_, std::align_val_t{64}));
      std::memset(data_, 0xff, size_);
      return;
    }
    void* mapping = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) throw_error("emulated device: the system has no {} bytes left", size_);
    data_ = static_cast<std::byte*>(mapping);
  }
  HeapMemory(const HeapMemory&) = delete;
  HeapMemory& operator=(const HeapMemory&) = delete;
  ~HeapMemory() {
    if (on_heap_) {
      ::operator delete (data_, std::align_val_t{64});
    } else {
      munmap(data_, size_);
    }
  }
  std::byte* data() const { return data_; }

 private:
  std::size_t size_;
  bool on_heap_;
  std::byte* data_ = nullptr;
};

class EmulatedBuffer : public Buffer {
 public:
  EmulatedBuffer(std::unique_ptr<HeapMemory> memory, std::size_t size, Memory kind, std::shared_ptr<void> reservation)
      : Buffer(size, kind == Memory::kShared ? memory->data() : nullptr),
        memory_(std::move(memory)),
        data_(memory_->data()),
        reservation_(std::move(reservation)) {}
  explicit EmulatedBuffer(std::span<const std::byte> mapped)
      : Buffer(mapped.size(), nullptr), data_(const_cast<std::byte*>(mapped.data())) {}
  std::byte* data() const { return data_; }

 private:
  std::unique_ptr<HeapMemory> memory_;
  std::byte* data_;
  std::shared_ptr<void> reservation_;
};

std::byte* data_of(const Buffer& buffer) {
  return static_cast<const EmulatedBuffer&>(buffer).data();
}

class EmulatedDevice : public Device {
 public:
  explicit EmulatedDevice(const EmulatedOptions& options)
      : only_counts_(options.only_counts), emulator_(options.seed), random_(options.seed) {
    info_ = {DeviceKind::kEmulated, "emulated GPU", options.memory_budget, true, false};
  }
  const DeviceInfo& info() const override { return info_; }

 protected:
  std::unique_ptr<Buffer> do_allocate(std::size_t bytes, Memory memory) override {
    auto reservation = reserve(bytes, "memory");
    return std::make_unique<EmulatedBuffer>(std::make_unique<HeapMemory>(bytes, only_counts_ ? kLargeUnused : kLarge),
                                            bytes, memory, std::move(reservation));
  }
  std::unique_ptr<Buffer> do_map(std::span<const std::byte> bytes) override {
    return std::make_unique<EmulatedBuffer>(bytes);
  }
  void do_write(Buffer& buffer, std::size_t offset, std::span<const std::byte> bytes) override {
    std::memcpy(data_of(buffer) + offset, bytes.data(), bytes.size());
  }
  void do_read(const Buffer& buffer, std::size_t offset, std::span<std::byte> out) override {
    std::memcpy(out.data(), data_of(buffer) + offset, out.size());
  }
  void do_submit(const CommandList& commands, Ticket ticket) override {
    emulator_.host_to_device();
    queue_.push_back({commands, ticket});
  }
  void do_wait(Ticket ticket) override {
    while (!queue_.empty() && queue_.front().ticket <= ticket) {
      Submission submission = std::move(queue_.front());
      queue_.pop_front();
      run(submission.commands);
    }
  }
  bool do_done(Ticket ticket) override { return queue_.empty() || queue_.front().ticket > ticket; }

 private:
  struct Submission {
    CommandList commands;
    Ticket ticket;
  };

  /// Dispatches between two barriers run in a shuffled order.
  void run(CommandList& commands) {
    if (only_counts_) return;
    std::vector<void*> arguments;  // of all dispatches: until device_to_host() the GPU's threads may read them
    for (const CommandList::Argument& argument : commands.arguments) {
      arguments.push_back(argument.buffer == nullptr ? &commands.values[argument.offset]
                                                     : data_of(*argument.buffer) + argument.offset);
    }
    const auto end = commands.dispatches.end();
    for (auto first = commands.dispatches.begin(); first != end;) {
      const auto last = std::find_if(first + 1, end, [](const CommandList::Dispatch& d) { return d.barrier; });
      std::vector<const CommandList::Dispatch*> stage;
      for (auto dispatch = first; dispatch != last; ++dispatch) stage.push_back(&*dispatch);
      std::shuffle(stage.begin(), stage.end(), random_);
      emulator_.fence();
      for (const CommandList::Dispatch* dispatch : stage) {
        const Extent& groups = dispatch->groups;
        emulator_.run(*dispatch->entry, arguments.data() + dispatch->first_argument, {groups.x, groups.y, groups.z});
      }
      first = last;
    }
    emulator_.fence();
    emulator_.device_to_host();
  }

  DeviceInfo info_;
  bool only_counts_;
  emulated::Emulator emulator_;
  std::mt19937_64 random_;
  std::deque<Submission> queue_;
};

}  // namespace

std::unique_ptr<Device> make_emulated_device(const EmulatedOptions& options) {
  return std::make_unique<EmulatedDevice>(options);
}

}  // namespace lily
