#include "checkpoint/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "support/error.h"
#include "support/json.h"

namespace lily {
namespace {

constexpr std::uint64_t kMaxHeader = 100'000'000;  // the format's own limit
constexpr std::size_t kMaxDimensions = 8;
constexpr std::uint64_t kMaxDimension = std::uint64_t{1} << 48;
constexpr const char* kDamaged = "the file may be damaged or cut short: download it again";

struct DTypeInfo {
  std::string_view name;
  DType dtype;
  std::uint64_t bits;
};

constexpr std::array kDTypes = {
    DTypeInfo{"BF16", DType::kBF16, 16},    DTypeInfo{"F16", DType::kF16, 16},
    DTypeInfo{"F32", DType::kF32, 32},      DTypeInfo{"U32", DType::kU32, 32},
    DTypeInfo{"U8", DType::kU8, 8},         DTypeInfo{"I32", DType::kI32, 32},
    DTypeInfo{"I64", DType::kI64, 64},      DTypeInfo{"F64", DType::kOther, 64},
    DTypeInfo{"U64", DType::kOther, 64},    DTypeInfo{"U16", DType::kOther, 16},
    DTypeInfo{"I16", DType::kOther, 16},    DTypeInfo{"I8", DType::kOther, 8},
    DTypeInfo{"BOOL", DType::kOther, 8},    DTypeInfo{"F8_E4M3", DType::kOther, 8},
    DTypeInfo{"F8_E5M2", DType::kOther, 8}, DTypeInfo{"F8_E8M0", DType::kOther, 8},
    DTypeInfo{"C64", DType::kOther, 64},    DTypeInfo{"F4", DType::kOther, 4},
    DTypeInfo{"F6_E2M3", DType::kOther, 6}, DTypeInfo{"F6_E3M2", DType::kOther, 6},
};

/// One tensor's entry as the header spells it.
struct Entry {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> offsets;
};

/// Accepts exactly the header's grammar while the JSON is parsed: nothing of a hostile header is built up first.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(std::string where, std::size_t length) : where_(std::move(where)), length_(length) {}

  std::vector<Entry> take() { return std::move(entries_); }

  bool start_object(std::size_t) override {
    if (level_ == Level::kStart) return enter(Level::kTop);
    if (level_ == Level::kTop && key_ == "__metadata__") return enter(Level::kMetadata);
    if (level_ == Level::kTop) return begin_entry();
    unexpected("an object");
  }
  bool end_object() override {
    if (level_ == Level::kTensor) end_entry();
    level_ = level_ == Level::kTop ? Level::kEnd : Level::kTop;
    return true;
  }
  bool start_array(std::size_t) override {
    if (level_ != Level::kTensor || (key_ != "shape" && key_ != "data_offsets")) unexpected("an array");
    list_ = key_ == "shape" ? &entries_.back().shape : &entries_.back().offsets;
    return enter(Level::kList);
  }
  bool end_array() override { return enter(Level::kTensor); }
  bool key(std::string& name) override {
    if (!(level_ == Level::kTop ? names_ : keys_).insert(name).second && level_ != Level::kMetadata) {
      fail(fmt::format("'{}' is given twice", printable(name)));
    }
    key_ = name;
    return true;
  }
  bool string(std::string& value) override {
    if (level_ == Level::kMetadata) return true;
    if (level_ != Level::kTensor || key_ != "dtype") unexpected("a string");
    entries_.back().dtype = value;
    return true;
  }
  bool number_unsigned(std::uint64_t value) override {
    if (level_ != Level::kList) unexpected("a number");
    if (list_->size() == kMaxDimensions) unexpected("more than 8 numbers");
    list_->push_back(value);
    return true;
  }
  bool number_integer(std::int64_t value) override { unexpected(fmt::format("the number {}", value)); }
  bool number_float(double, const std::string& text) override { unexpected("the number " + printable(text)); }
  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool binary(binary_t&) override { unexpected("bytes"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    throw Error(fmt::format("{}: the header is not valid JSON at byte {} of {}", where_, position, length_), kDamaged);
  }

 private:
  enum class Level { kStart, kTop, kMetadata, kTensor, kList, kEnd };

  bool enter(Level level) {
    level_ = level;
    if (level == Level::kMetadata) keys_.clear();
    return true;
  }
  bool begin_entry() {
    entries_.push_back({.name = key_, .dtype = {}, .shape = {}, .offsets = {}});
    keys_.clear();
    return enter(Level::kTensor);
  }
  void end_entry() {
    for (const char* needed : {"dtype", "shape", "data_offsets"}) {
      if (!keys_.contains(needed))
        fail(fmt::format("tensor '{}' has no '{}'", printable(entries_.back().name), needed));
    }
    if (keys_.size() != 3) fail(fmt::format("tensor '{}' has an unknown field", printable(entries_.back().name)));
  }
  [[noreturn]] void unexpected(const std::string& found) const {
    fail(fmt::format("'{}' holds {}, which no safetensors header has there", printable(key_), found));
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(fmt::format("{}: header: {}", where_, what), kDamaged);
  }

  std::string where_;
  std::size_t length_;
  Level level_ = Level::kStart;
  std::string key_;
  std::unordered_set<std::string> names_;  // of the tensors
  std::unordered_set<std::string> keys_;   // of the open tensor
  std::vector<std::uint64_t>* list_ = nullptr;
  std::vector<Entry> entries_;
};

/// A tensor and where its bytes lie in the data.
struct Placed {
  TensorView view;
  std::uint64_t begin;
  std::uint64_t end;
};

/// Bytes that dtype and shape promise.
std::uint64_t byte_count(const Entry& entry, const DTypeInfo& dtype, const std::string& where) {
  std::uint64_t count = dtype.bits;
  for (const std::uint64_t dimension : entry.shape) {
    if (dimension > kMaxDimension || __builtin_mul_overflow(count, dimension, &count)) {
      throw_error("{}: tensor '{}' has a shape too large for any file: dimension {}", where, printable(entry.name),
                  dimension);
    }
  }
  return (count + 7) / 8;
}

Placed place(const Entry& entry, std::span<const std::byte> data, const std::string& where) {
  const std::string name = printable(entry.name);
  const auto info = std::find_if(kDTypes.begin(), kDTypes.end(),
                                 [&](const DTypeInfo& candidate) { return candidate.name == entry.dtype; });
  if (info == kDTypes.end()) {
    throw_error("{}: tensor '{}' has dtype '{}', which lily does not know", where, name, printable(entry.dtype));
  }
  if (entry.offsets.size() != 2) {
    throw_error("{}: tensor '{}' has {} data_offsets, expected 2", where, name, entry.offsets.size());
  }
  const std::uint64_t begin = entry.offsets[0];
  const std::uint64_t end = entry.offsets[1];
  if (begin > end || end > data.size()) {
    throw Error(fmt::format("{}: tensor '{}' lies at bytes {} to {} of the data, expected within 0 to {}", where, name,
                            begin, end, data.size()),
                kDamaged);
  }
  Placed placed{
      .view = {.name = entry.name, .dtype = info->dtype, .shape = {}, .bytes = {}}, .begin = begin, .end = end};
  const std::uint64_t expected = byte_count(entry, *info, where);
  placed.view.shape.assign(entry.shape.begin(), entry.shape.end());
  if (end - begin != expected) {
    throw_error("{}: tensor '{}' has {} bytes, expected {} for {} {}", where, name, end - begin, expected, entry.dtype,
                shape_text(placed.view.shape));
  }
  placed.view.bytes = data.subspan(begin, end - begin);
  return placed;
}

void check_coverage(std::span<const Placed> tensors, std::uint64_t data_size, const std::string& where) {
  std::uint64_t position = 0;
  std::string_view previous = "the header";
  for (const Placed& tensor : tensors) {
    if (tensor.begin != position) {
      throw_error("{}: tensor '{}' starts at byte {} of the data, expected {}, where '{}' ends ({})", where,
                  printable(tensor.view.name), tensor.begin, position, printable(previous),
                  tensor.begin < position ? "they overlap" : "there is a hole");
    }
    position = tensor.end;
    previous = tensor.view.name;
  }
  if (position != data_size) {
    throw Error(fmt::format("{}: has {} bytes of data, expected {}", where, data_size, position), kDamaged);
  }
}

/// The header's text; the data follows it.
std::string_view header_of(std::span<const std::byte> file, const std::string& where) {
  constexpr std::size_t kPrefix = sizeof(std::uint64_t);
  if (file.size() < kPrefix) {
    throw Error(fmt::format("{}: has {} bytes, too few for a safetensors file", where, file.size()), kDamaged);
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kPrefix; ++i) length |= std::to_integer<std::uint64_t>(file[i]) << (8 * i);
  if (length > kMaxHeader || length > file.size() - kPrefix) {
    throw Error(fmt::format("{}: the header claims {} bytes, expected at most {}", where, length,
                            std::min<std::uint64_t>(kMaxHeader, file.size() - kPrefix)),
                "this is no safetensors file, or it is cut short: download it again");
  }
  return {reinterpret_cast<const char*>(file.data()) + kPrefix, static_cast<std::size_t>(length)};
}

}  // namespace

std::string_view dtype_name(DType dtype) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.dtype == dtype && dtype != DType::kOther) return info.name;
  }
  return "another type";
}

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::vector<TensorView> parse_safetensors(std::span<const std::byte> file, const std::string& where) {
  const std::string_view header = header_of(file, where);
  const std::span<const std::byte> data = file.subspan(sizeof(std::uint64_t) + header.size());

  if (header.find('\0') != std::string_view::npos) {  // the JSON parser would take it for the end
    throw Error(fmt::format("{}: the header holds a NUL byte", where), kDamaged);
  }
  HeaderReader reader(where, header.size());
  nlohmann::json::sax_parse(header.begin(), header.end(), &reader);

  std::vector<Placed> placed;
  for (const Entry& entry : reader.take()) placed.push_back(place(entry, data, where));
  std::sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;  // empty tensors first
  });
  check_coverage(placed, data.size(), where);

  std::vector<TensorView> tensors;
  tensors.reserve(placed.size());
  for (Placed& tensor : placed) tensors.push_back(std::move(tensor.view));
  return tensors;
}

}  // namespace lily
