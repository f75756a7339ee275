#include "device/device.h"

#include <algorithm>
#include <cstring>

namespace lily {

namespace {

constexpr std::size_t kInFlight = 2;
constexpr std::pair<std::string_view, DeviceKind> kKinds[] = {{"auto", DeviceKind::kAuto},
                                                              {"metal", DeviceKind::kMetal},
                                                              {"cuda", DeviceKind::kCuda},
                                                              {"cpu", DeviceKind::kCpu},
                                                              {"emulated", DeviceKind::kEmulated}};

double gib(std::size_t bytes) {
  return static_cast<double>(bytes) / (1 << 30);
}

}  // namespace

DeviceKind parse_device_kind(std::string_view name) {
  for (const auto& [known, kind] : kKinds)
    if (known == name) return kind;
  throw Error(fmt::format("device '{}' is not known", name), "use auto, metal, cuda, cpu or emulated");
}

std::string_view to_string(DeviceKind kind) {
  for (const auto& [name, known] : kKinds)
    if (known == kind) return name;
  return "unknown";
}

Counters& Counters::operator+=(const Counters& other) {
  dispatches += other.dispatches;
  stages += other.stages;
  weight_bytes += other.weight_bytes;
  return *this;
}

Counters operator-(const Counters& after, const Counters& before) {
  return {.dispatches = after.dispatches - before.dispatches,
          .stages = after.stages - before.stages,
          .weight_bytes = after.weight_bytes - before.weight_bytes};
}

bool HazardTracker::add(std::span<const Range> ranges) {
  const auto conflicts = [&](const Range& range) {
    return std::any_of(since_barrier_.begin(), since_barrier_.end(), [&](const Range& earlier) {
      return (range.written || earlier.written) && range.buffer == earlier.buffer && range.begin < earlier.end &&
             earlier.begin < range.end;
    });
  };
  const bool barrier = std::any_of(ranges.begin(), ranges.end(), conflicts);
  if (barrier) since_barrier_.clear();
  since_barrier_.insert(since_barrier_.end(), ranges.begin(), ranges.end());
  return barrier;
}

std::shared_ptr<void> Device::reserve(std::size_t bytes, std::string_view what) {
  const std::size_t budget = info().memory_budget;
  if (bytes > budget || *memory_in_use_ > budget - bytes) {
    throw Error(fmt::format("{}: {} of {:.2f} GiB does not fit: {:.2f} GiB of {:.2f} GiB are in use", info().name, what,
                            gib(bytes), gib(*memory_in_use_), gib(budget)),
                "use a shorter context, or a machine with more memory for the GPU");
  }
  *memory_in_use_ += bytes;
  return {nullptr, [in_use = memory_in_use_, bytes](void*) { *in_use -= bytes; }};
}

std::unique_ptr<Buffer> Device::allocate(std::size_t bytes, Memory memory) {
  LILY_CHECK(bytes > 0);
  return do_allocate(bytes, memory);
}

std::unique_ptr<Buffer> Device::map(std::span<const std::byte> bytes, std::size_t alignment) {
  LILY_CHECK(!bytes.empty());
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignment == 0) return do_map(bytes);
  auto copy = do_allocate(bytes.size(), Memory::kDevice);
  do_write(*copy, 0, bytes);
  return copy;
}

void Device::write(Buffer& buffer, std::size_t offset, std::span<const std::byte> bytes) {
  LILY_CHECK(offset <= buffer.size() && bytes.size() <= buffer.size() - offset);
  wait(submit());
  do_write(buffer, offset, bytes);
}

void Device::read(const Buffer& buffer, std::size_t offset, std::span<std::byte> out) {
  LILY_CHECK(offset <= buffer.size() && out.size() <= buffer.size() - offset);
  wait(submit());
  do_read(buffer, offset, out);
}

void Device::begin_dispatch(const Entry& entry, const Launch& launch) {
  LILY_CHECK(launch.groups.x > 0 && launch.groups.y > 0 && launch.groups.z > 0);
  LILY_CHECK(launch.groups.y <= 65535 && launch.groups.z <= 65535);  // CUDA's limits
  pending_.dispatches.push_back({&entry, launch.groups, pending_.arguments.size(), false});
  pending_.counters.dispatches += 1;
  pending_.counters.weight_bytes += launch.weight_bytes;
}

void Device::add_view(const Buffer* buffer, std::size_t offset, std::size_t bytes) {
  pending_.arguments.push_back({buffer, offset, bytes});
}

void Device::add_value(const void* value, std::size_t size) {
  const std::size_t offset = pending_.values.size();
  pending_.values.resize(offset + (size + 15) / 16 * 16);
  std::memcpy(&pending_.values[offset], value, size);
  pending_.arguments.push_back({nullptr, offset, size});
}

void Device::check_argument(const CommandList::Argument& argument, const Parameter& parameter) const {
  if (parameter.access == Access::kValue) return;
  LILY_CHECK(argument.buffer != nullptr && argument.size > 0);
  LILY_CHECK(argument.offset % parameter.alignment == 0);
  LILY_CHECK(argument.offset <= argument.buffer->size() && argument.size <= argument.buffer->size() - argument.offset);
}

void Device::end_dispatch() {
  CommandList::Dispatch& dispatch = pending_.dispatches.back();
  const std::span<const Parameter> parameters = dispatch.entry->parameters;
  const std::span<const CommandList::Argument> arguments = pending_.arguments_of(dispatch);
  ranges_.clear();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    check_argument(arguments[i], parameters[i]);
    if (parameters[i].access == Access::kValue) continue;
    const HazardTracker::Range range{arguments[i].buffer, arguments[i].offset, arguments[i].offset + arguments[i].size,
                                     parameters[i].access == Access::kWrite};
    for (const HazardTracker::Range& other : ranges_) {  // Metal's compiler assumes that written buffers have no alias
      LILY_CHECK(!(range.written || other.written) || range.buffer != other.buffer || range.end <= other.begin ||
                 other.end <= range.begin);
    }
    ranges_.push_back(range);
  }
  dispatch.barrier = tracker_.add(ranges_) || (!overlap_ && pending_.dispatches.size() > 1);
  if (dispatch.barrier || pending_.dispatches.size() == 1) pending_.counters.stages += 1;
}

void Device::dispatch(const Entry& entry, const Launch& launch, std::span<const CommandList::Argument> arguments,
                      std::span<const std::byte> values) {
  LILY_CHECK(arguments.size() == entry.parameters.size());
  begin_dispatch(entry, launch);
  for (const CommandList::Argument& argument : arguments) {
    if (argument.buffer != nullptr) {
      add_view(argument.buffer, argument.offset, argument.size);
    } else {
      add_value(&values[argument.offset], argument.size);
    }
  }
  end_dispatch();
}

CommandList Device::take_commands() {
  tracker_.clear();
  return std::exchange(pending_, {});
}

Device::Ticket Device::next_ticket(const Counters& counters) {
  if (submitted_ - finished_ >= kInFlight) wait(submitted_ - kInFlight + 1);
  counters_ += counters;
  return ++submitted_;
}

Device::Ticket Device::submit() {
  if (pending_.dispatches.empty()) return submitted_;
  const CommandList commands = take_commands();
  const Ticket ticket = next_ticket(commands.counters);
  do_submit(commands, ticket);
  return ticket;
}

std::unique_ptr<Step> Device::record() {
  return do_record(take_commands());
}

Device::Ticket Device::submit(Step& step) {
  submit();
  const Ticket ticket = next_ticket(step.counters());
  do_submit(step, ticket);
  return ticket;
}

void Device::wait(Ticket ticket) {
  LILY_CHECK(ticket <= submitted_);
  if (ticket <= finished_) return;
  finished_ = ticket;
  do_wait(ticket);
}

bool Device::done(Ticket ticket) {
  return ticket <= finished_ || do_done(ticket);
}

}  // namespace lily
