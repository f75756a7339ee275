#include "device/emulated/emulator.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "device/emulated/fiber.h"
#include "device/emulated/sanitizers.h"
#include "support/error.h"

namespace lily::emulated {
namespace {

constexpr std::size_t kStackSize = 64 << 10;
constexpr unsigned kLanes = 32;

enum class Waiting : std::uint8_t { kReady, kInSimdgroup, kInBarrier, kDone };

struct Fiber {
  explicit Fiber(std::size_t index) : stack(kStackSize, GuardedMemory::Guard::kBelow), colour(index * 192 % 4096) {}
  Lane lane;
  GuardedMemory stack;
  std::size_t colour;  // spreads the stacks' tops over the cache's sets
  void* saved = nullptr;
  Waiting waiting = Waiting::kReady;
  bool inputs_ready = false;
  SanitizerThread sanitizer;
};

struct Simdgroup {
  std::uint64_t slots[2][kLanes] = {};  // in turn: lanes still read the last exchange's while the next begins
  unsigned turn = 0;
  unsigned arrived = 0;
  unsigned live = 0;
  Where where;
};

struct Block {  // of threadgroup memory
  const void* site;
  std::byte* memory;
  std::size_t size;
};

std::string place(Where where) {
  return where.file == nullptr ? "the kernel's end" : fmt::format("{}:{}", where.file, where.line);
}

}  // namespace

class Emulator::State {
 public:
  explicit State(std::uint64_t seed)
      : random_(seed),
        memory_(kThreadgroupMemory + kRedZones, GuardedMemory::Guard::kAbove),
        large_memory_(kLargeMemory + kRedZones, GuardedMemory::Guard::kAbove) {}

  void run(const Entry& entry, void* const* arguments, Position groups);
  void fence();
  void host_to_device() { host_.release(); }
  void device_to_host() { end_.acquire(); }

  void* threadgroup_memory(const void* site, std::size_t size);
  std::uint64_t* exchange(std::uint64_t value, Where where, void (*reduce)(std::uint64_t*));
  void barrier(Where where);
  void inputs_ready();

 private:
  static constexpr std::size_t kRedZones = 16 << 10;
  static constexpr std::size_t kLargeMemory = 227 << 10;

  void shuffle_threads();
  void start_threadgroup(Position group, Position groups);
  void run_threadgroup();
  void enter(Fiber& fiber);
  void leave(bool for_good = false);
  static void body();
  void wake(Waiting what, unsigned from, unsigned to);
  [[noreturn]] void fail_at(const char* what, Where first, Where second);
  // A thread that fails never runs on, so its stack must own no memory by then: first record(), then abandon().
  void record(const std::string& what);
  [[noreturn]] void abandon();

  std::mt19937_64 random_;
  std::deque<Fiber> fibers_;
  std::vector<unsigned> order_;  // in which the threads of a threadgroup run
  std::vector<Simdgroup> simdgroups_;
  std::vector<Block> blocks_;
  std::size_t memory_used_ = 0;
  std::byte* memory_top_ = nullptr;
  GuardedMemory memory_;
  GuardedMemory large_memory_;  // for entries of src/kernels/cuda

  const Entry* entry_ = nullptr;
  void* const* arguments_ = nullptr;
  unsigned threads_ = 0;
  unsigned live_ = 0;
  unsigned at_barrier_ = 0;
  Where barrier_where_;
  std::string failure_;

  Fiber* now_ = nullptr;
  void* scheduler_saved_ = nullptr;
  SanitizerThread scheduler_;
  SanitizerThread courier_;
  // host_: the host's writes. begin_: what the last fence let through. end_: the ends of dispatches. group_: the
  // scheduler's preparation of a threadgroup. barriers_: a new one for each threadgroup, so that no two are ordered.
  Token host_, begin_, end_, group_;
  std::unique_ptr<Token> barriers_;
};

namespace {
constinit thread_local Emulator::State* active = nullptr;
constinit thread_local const Lane* self = nullptr;
}  // namespace

void Emulator::State::record(const std::string& what) {
  const Lane& lane = now_->lane;
  failure_ = fmt::format("{}: {} (threadgroup {},{},{}, thread {})", entry_->name, what, lane.group.x, lane.group.y,
                         lane.group.z, lane.thread);
}

void Emulator::State::abandon() {
  leave(true);
  std::abort();
}

void Emulator::State::fail_at(const char* what, Where first, Where second) {
  record(fmt::format("{}: {} and {}", what, place(first), place(second)));
  abandon();
}

void Emulator::State::enter(Fiber& fiber) {
  now_ = &fiber;
  self = &fiber.lane;
  scheduler_.switch_to(fiber.sanitizer);
  lily_fiber_switch(&scheduler_saved_, fiber.saved);
  scheduler_.switched_from(fiber.sanitizer);
}

void Emulator::State::leave(bool for_good) {
  Fiber& fiber = *now_;
  fiber.sanitizer.switch_to(scheduler_, for_good);
  lily_fiber_switch(&fiber.saved, scheduler_saved_);
  fiber.sanitizer.switched_from(scheduler_);
}

void Emulator::State::body() {
  State& state = *active;
  Fiber& fiber = *state.now_;
  fiber.sanitizer.switched_from(state.scheduler_);
  state.host_.acquire();
  state.group_.acquire();
  if (!state.entry_->prefetches) state.inputs_ready();
  state.entry_->run_thread(state.arguments_);
  if (!fiber.inputs_ready) {
    state.record("a thread left without wait_for_inputs()");
    state.abandon();
  }
  state.end_.release();
  fiber.waiting = Waiting::kDone;
  --state.live_;
  Simdgroup& simdgroup = state.simdgroups_[fiber.lane.simdgroup];
  if (simdgroup.arrived > 0) state.fail_at("a lane left while others are in a simdgroup function", simdgroup.where, {});
  --simdgroup.live;
  if (state.at_barrier_ > 0) state.fail_at("a thread left while others are in a barrier", state.barrier_where_, {});
  state.leave(true);
  std::abort();
}

void Emulator::State::wake(Waiting what, unsigned from, unsigned to) {
  for (unsigned i = from; i < to; ++i)
    if (fibers_[i].waiting == what) fibers_[i].waiting = Waiting::kReady;
}

void* Emulator::State::threadgroup_memory(const void* site, std::size_t size) {
  const auto known = std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& b) { return b.site == site; });
  if (known != blocks_.end()) return known->memory;
  constexpr std::size_t kRedZone = 64;
  const std::size_t rounded = (size + 15) / 16 * 16;
  memory_used_ += rounded;
  const std::size_t most = std::max(kThreadgroupMemory, entry_->large_memory);
  if (memory_used_ > most || blocks_.size() * kRedZone >= kRedZones) {
    record(fmt::format("{} bytes of threadgroup memory, {} at most", memory_used_, most));
    abandon();
  }
  if (!blocks_.empty()) memory_top_ -= kRedZone;
  memory_top_ -= rounded;  // the first block ends at the guard page, but for its alignment
  unpoison(memory_top_, size);
  blocks_.push_back({site, memory_top_, size});
  return memory_top_;
}

std::uint64_t* Emulator::State::exchange(std::uint64_t value, Where where, void (*reduce)(std::uint64_t*)) {
  Fiber& fiber = *now_;
  Simdgroup& simdgroup = simdgroups_[fiber.lane.simdgroup];
  std::uint64_t* slots = simdgroup.slots[simdgroup.turn];
  if (simdgroup.arrived == 0) {
    simdgroup.where = where;
  } else if (simdgroup.where.line != where.line || simdgroup.where.file != where.file) {
    fail_at("the lanes of a simdgroup diverge at a simdgroup function", simdgroup.where, where);
  }
  if (simdgroup.live < kLanes) fail_at("a simdgroup function after a lane has left", where, {});
  slots[fiber.lane.lane] = value;
  if (++simdgroup.arrived == kLanes) {
    simdgroup.arrived = 0;
    simdgroup.turn ^= 1;
    if (reduce != nullptr) {
      const IgnoreAccesses ignore;
      reduce(slots);
    }
    wake(Waiting::kInSimdgroup, fiber.lane.simdgroup * kLanes, (fiber.lane.simdgroup + 1) * kLanes);
  } else {
    fiber.waiting = Waiting::kInSimdgroup;
    leave();
  }
  return slots;
}

void Emulator::State::barrier(Where where) {
  Fiber& fiber = *now_;
  if (at_barrier_ == 0) {
    barrier_where_ = where;
  } else if (barrier_where_.line != where.line || barrier_where_.file != where.file) {
    fail_at("the threads of a threadgroup diverge at a barrier", barrier_where_, where);
  }
  if (live_ != threads_) fail_at("a barrier after a thread has left", where, {});
  barriers_->release();
  if (++at_barrier_ == live_) {
    at_barrier_ = 0;
    wake(Waiting::kInBarrier, 0, threads_);
  } else {
    fiber.waiting = Waiting::kInBarrier;
    leave();
  }
  barriers_->acquire();
}

void Emulator::State::inputs_ready() {
  begin_.acquire();
  now_->inputs_ready = true;
}

void Emulator::State::fence() {
  // Through a thread of its own: the scheduler must not carry the order into threads that have not asked for it.
  scheduler_.adopt_current();
  courier_.renew(nullptr, 0);
  scheduler_.become(courier_);
  end_.acquire();
  begin_.release();
  courier_.become(scheduler_);
}

void Emulator::State::start_threadgroup(Position group, Position groups) {
  const IgnoreAccesses ignore;
  GuardedMemory& used = entry_->large_memory > 0 ? large_memory_ : memory_;
#ifdef LILY_TSAN_FIBERS
  used.renew();
#endif
  const std::span<std::byte> memory = used.bytes();
  unpoison(memory.data(), memory.size());
  std::memset(memory.data(), 0xff, memory.size());
  poison(memory.data(), memory.size());
  memory_top_ = memory.data() + memory.size();
  memory_used_ = 0;
  blocks_.clear();
  simdgroups_.assign(threads_ / kLanes, Simdgroup{});
  for (Simdgroup& simdgroup : simdgroups_) simdgroup.live = kLanes;
  live_ = threads_;
  at_barrier_ = 0;
  for (unsigned i = 0; i < threads_; ++i) {
    Fiber& fiber = fibers_[i];
#ifdef LILY_TSAN_FIBERS
    fiber.stack.renew();
#endif
    const std::span<std::byte> stack = fiber.stack.bytes();
    fiber.sanitizer.renew(stack.data(), stack.size());
    unpoison(stack.data(), stack.size());
    fiber.lane = {i, i / kLanes, i % kLanes, threads_, group, groups};
    fiber.waiting = Waiting::kReady;
    fiber.inputs_ready = false;
    fiber.saved = prepare_stack(stack.data() + stack.size() - fiber.colour, &State::body);
  }
  barriers_ = std::make_unique<Token>();
  group_.release();
}

void Emulator::State::run_threadgroup() {
  while (live_ > 0) {
    bool moved = false;
    for (const unsigned i : order_) {
      if (fibers_[i].waiting != Waiting::kReady) continue;
      moved = true;
      enter(fibers_[i]);
      if (!failure_.empty()) return;
    }
    if (moved) continue;
    failure_ = fmt::format("{}: deadlock: some threads wait in the barrier at {}, others in a simdgroup function",
                           entry_->name, place(barrier_where_));
    return;
  }
}

void Emulator::State::shuffle_threads() {
  std::vector<unsigned> simdgroups(threads_ / kLanes);
  std::iota(simdgroups.begin(), simdgroups.end(), 0U);
  std::shuffle(simdgroups.begin(), simdgroups.end(), random_);
  order_.clear();
  for (const unsigned simdgroup : simdgroups) {
    for (unsigned lane = 0; lane < kLanes; ++lane) order_.push_back(simdgroup * kLanes + lane);
    std::shuffle(order_.end() - kLanes, order_.end(), random_);
  }
}

void Emulator::State::run(const Entry& entry, void* const* arguments, Position groups) {
  LILY_CHECK(active == nullptr);
  entry_ = &entry;
  arguments_ = arguments;
  threads_ = entry.threads;
  failure_.clear();
  active = this;
  scheduler_.adopt_current();
  while (fibers_.size() < threads_) fibers_.emplace_back(fibers_.size());
  shuffle_threads();
  std::vector<Position> grid;
  for (Position g; g.z < groups.z; ++g.z)
    for (g.y = 0; g.y < groups.y; ++g.y)
      for (g.x = 0; g.x < groups.x; ++g.x) grid.push_back(g);
  std::shuffle(grid.begin(), grid.end(), random_);
  for (const Position& group : grid) {
    start_threadgroup(group, groups);
    run_threadgroup();
    if (!failure_.empty()) break;
  }
  active = nullptr;
  self = nullptr;
  if (!failure_.empty()) throw Error("kernel " + failure_);
}

Emulator::Emulator(std::uint64_t seed) : state_(std::make_unique<State>(seed)) {}
Emulator::~Emulator() = default;
void Emulator::run(const Entry& entry, void* const* arguments, Position groups) {
  state_->run(entry, arguments, groups);
}
void Emulator::fence() {
  state_->fence();
}
void Emulator::host_to_device() {
  state_->host_to_device();
}
void Emulator::device_to_host() {
  state_->device_to_host();
}

const Lane& current_lane() {
  return *self;
}
void* threadgroup_memory(const void* site, std::size_t size) {
  return active->threadgroup_memory(site, size);
}
std::uint64_t* exchange(std::uint64_t value, Where where, void (*reduce)(std::uint64_t*)) {
  return active->exchange(value, where, reduce);
}
void barrier(Where where) {
  active->barrier(where);
}
void inputs_ready() {
  active->inputs_ready();
}

}  // namespace lily::emulated
