#include "device/checking_device.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "device/emulated/emulated_device.h"
#include "support/bfloat16.h"

namespace lily {
namespace {

constexpr double kPairTolerance = 1.0 / 64;  // of bf16 values that a kernel writes two to a word: two roundings apart

/// The largest difference of floats, relative to the largest value.
class FloatError {
 public:
  void add(float found, float expected) {
    if (std::isnan(found) && std::isnan(expected)) return;
    if (found == expected) return add_scale(expected);  // infinities too
    const double difference = std::abs(double{found} - double{expected});
    worst_ = std::isfinite(difference) ? std::max(worst_, difference) : INFINITY;
    add_scale(expected);
  }
  double relative() const { return worst_ == 0 ? 0 : worst_ / (scale_ == 0 ? 1 : scale_); }

 private:
  void add_scale(float expected) {
    if (std::isfinite(expected)) scale_ = std::max(scale_, std::abs(double{expected}));
  }
  double worst_ = 0, scale_ = 0;
};

/// A word that holds two bf16 values of ordinary size: no count or index looks like one.
bool is_pair(std::uint32_t word) {
  const auto ordinary = [](std::uint32_t half) {
    const std::uint32_t exponent = half >> 7 & 0xff;
    return (half & 0x7fff) == 0 || (exponent > 80 && exponent < 170);
  };
  return word != 0 && ordinary(word & 0xffff) && ordinary(word >> 16);
}

bool same_pair(std::uint32_t found, std::uint32_t expected) {
  if (!is_pair(found) || !is_pair(expected)) return false;
  const auto near = [](std::uint32_t a, std::uint32_t b) {
    const float x = std::bit_cast<float>(a << 16), y = std::bit_cast<float>(b << 16);
    return std::abs(x - y) <= kPairTolerance * std::max(1e-3, double{std::abs(y)});
  };
  return near(found & 0xffff, expected & 0xffff) && near(found >> 16, expected >> 16);
}

template <typename T>
std::vector<T> as(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

void compare_values(const std::vector<std::byte>& found, const std::vector<std::byte>& expected, Element element,
                    bool any_order, KernelVerdict& verdict) {
  FloatError error;
  if (element == Element::kFloat32) {
    const auto a = as<float>(found), b = as<float>(expected);
    for (std::size_t i = 0; i < a.size(); ++i) error.add(a[i], b[i]);
  } else if (element == Element::kBFloat16) {
    const auto a = as<BFloat16>(found), b = as<BFloat16>(expected);
    for (std::size_t i = 0; i < a.size(); ++i) error.add(float{a[i]}, float{b[i]});
  } else {
    auto a = as<std::uint32_t>(found), b = as<std::uint32_t>(expected);
    if (any_order) {
      std::sort(a.begin(), a.end());
      std::sort(b.begin(), b.end());
    }
    for (std::size_t i = 0; i < a.size(); ++i) verdict.different += a[i] != b[i] && !same_pair(a[i], b[i]);
  }
  verdict.worst_error = std::max(verdict.worst_error, error.relative());
}

}  // namespace

/// A buffer on both devices. Its host memory is that of the device under test.
struct CheckingDevice::Twin : Buffer {
  Twin(std::unique_ptr<Buffer> first, std::unique_ptr<Buffer> second, std::set<Twin*>* with_host)
      : Buffer(first->size(), first->host().data()),
        under_test(std::move(first)),
        emulated(std::move(second)),
        all_with_host(host().empty() ? nullptr : with_host) {
    if (all_with_host != nullptr) all_with_host->insert(this);
  }
  ~Twin() override {
    if (all_with_host != nullptr) all_with_host->erase(this);
  }
  std::unique_ptr<Buffer> under_test, emulated;
  std::set<Twin*>* all_with_host;
};

struct CheckingDevice::Verdicts {
  std::map<std::string, KernelVerdict> by_name;
  std::set<Twin*> with_host;
};

CheckingDevice::CheckingDevice(std::unique_ptr<Device> under_test)
    : under_test_(std::move(under_test)),
      emulated_(make_emulated_device({.seed = 2})),
      verdicts_(std::make_unique<Verdicts>()) {}

CheckingDevice::~CheckingDevice() = default;

std::vector<KernelVerdict> CheckingDevice::verdicts() const {
  std::vector<KernelVerdict> all;
  for (const auto& [name, verdict] : verdicts_->by_name) all.push_back(verdict);
  return all;
}

std::unique_ptr<Buffer> CheckingDevice::do_allocate(std::size_t bytes, Memory memory) {
  auto twin =
      std::make_unique<Twin>(under_test_->allocate(bytes, memory), emulated_->allocate(bytes), &verdicts_->with_host);
  std::vector<std::byte> fresh(bytes);  // the same garbage on both
  emulated_->read(*twin->emulated, 0, fresh);
  under_test_->write(*twin->under_test, 0, fresh);
  return twin;
}

std::unique_ptr<Buffer> CheckingDevice::do_map(std::span<const std::byte> bytes) {
  return std::make_unique<Twin>(under_test_->map(bytes), emulated_->map(bytes), &verdicts_->with_host);
}

void CheckingDevice::do_write(Buffer& buffer, std::size_t offset, std::span<const std::byte> bytes) {
  auto& twin = static_cast<Twin&>(buffer);
  under_test_->write(*twin.under_test, offset, bytes);
  emulated_->write(*twin.emulated, offset, bytes);
}

void CheckingDevice::do_read(const Buffer& buffer, std::size_t offset, std::span<std::byte> out) {
  under_test_->read(*static_cast<const Twin&>(buffer).under_test, offset, out);
}

void CheckingDevice::do_submit(const CommandList& commands, Ticket) {
  for (Twin* twin : verdicts_->with_host) emulated_->write(*twin->emulated, 0, twin->host());
  for (const CommandList::Dispatch& dispatch : commands.dispatches) run(commands, dispatch);
}

void CheckingDevice::run(const CommandList& commands, const CommandList::Dispatch& dispatch) {
  KernelVerdict& verdict = verdicts_->by_name[dispatch.entry->name];
  verdict.name = dispatch.entry->name;
  verdict.launches += 1;
  const auto run_on = [&](Device& device, std::unique_ptr<Buffer> Twin::*side) {
    std::vector<CommandList::Argument> arguments;
    for (CommandList::Argument argument : commands.arguments_of(dispatch)) {
      if (argument.buffer != nullptr) argument.buffer = (static_cast<const Twin*>(argument.buffer)->*side).get();
      arguments.push_back(argument);
    }
    device.dispatch(*dispatch.entry, {.groups = dispatch.groups}, arguments, commands.values);
    device.wait(device.submit());
  };
  run_on(*emulated_, &Twin::emulated);
  try {
    run_on(*under_test_, &Twin::under_test);
  } catch (const Error& error) {
    verdict.failure = error.what();
  }
  compare(commands, dispatch, verdict);
}

void CheckingDevice::compare(const CommandList& commands, const CommandList::Dispatch& dispatch,
                             KernelVerdict& verdict) {
  const std::span<const Parameter> parameters = dispatch.entry->parameters;
  const auto arguments = commands.arguments_of(dispatch);
  const bool any_order = std::any_of(parameters.begin(), parameters.end(),
                                     [](const Parameter& p) { return p.element == Element::kAtomic; });
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].access != Access::kWrite) continue;
    const auto& twin = static_cast<const Twin&>(*arguments[i].buffer);
    std::vector<std::byte> found(arguments[i].size), expected(arguments[i].size);
    emulated_->read(*twin.emulated, arguments[i].offset, expected);
    if (verdict.failure.empty()) {
      under_test_->read(*twin.under_test, arguments[i].offset, found);
      compare_values(found, expected, parameters[i].element, any_order, verdict);
    }
    // Both go on from the right values.
    under_test_->write(*twin.under_test, arguments[i].offset, expected);
  }
}

}  // namespace lily
