#include "support/checked_file.h"

#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <vector>

#include "support/error.h"

namespace lily {

namespace {

struct FreeHash {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

/// Several writers of one path, in one process or more, must not share a temporary file.
std::filesystem::path temporary_name(const std::filesystem::path& path) {
  static std::atomic<std::uint64_t> count{0};
  return fmt::format("{}.{}.{}.tmp", path.string(), ::getpid(), count++);
}

}  // namespace

struct CheckedWriter::Hash {
  Hash() : state(XXH3_createState()) { XXH3_64bits_reset(state.get()); }
  void add(std::span<const std::byte> bytes) { XXH3_64bits_update(state.get(), bytes.data(), bytes.size()); }
  std::uint64_t value() const { return XXH3_64bits_digest(state.get()); }

  std::unique_ptr<XXH3_state_t, FreeHash> state;
};

CheckedWriter::CheckedWriter(const std::filesystem::path& path, std::string_view magic)
    : path_(path), temporary_(temporary_name(path)), hash_(std::make_unique<Hash>()) {
  file_.reset(std::fopen(temporary_.c_str(), "wb"));
  if (!file_) failed("create");
  write_values(std::span(magic));
}

CheckedWriter::~CheckedWriter() {
  file_.reset();
  std::error_code ignored;
  if (!finished_) std::filesystem::remove(temporary_, ignored);
}

void CheckedWriter::write(std::span<const std::byte> bytes) {
  hash_->add(bytes);
  put(bytes);
}

void CheckedWriter::write_text(std::string_view text) {
  write_number(text.size());
  write_values(std::span(text));
}

void CheckedWriter::finish() {
  const std::uint64_t checksum = hash_->value();
  put(std::as_bytes(std::span(&checksum, 1)));
  if (std::fflush(file_.get()) != 0 || ::fsync(::fileno(file_.get())) != 0) failed("write");
  file_.reset();
  std::error_code error;
  std::filesystem::rename(temporary_, path_, error);
  if (error) throw_error("cannot rename {} to {}: {}", temporary_.string(), path_.string(), error.message());
  finished_ = true;
}

void CheckedWriter::put(std::span<const std::byte> bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) failed("write");
}

void CheckedWriter::failed(const char* what) const {
  throw_error("cannot {} {}: {}", what, temporary_.string(), std::generic_category().message(errno));
}

CheckedReader::CheckedReader(const std::filesystem::path& path, std::string_view magic)
    : path_(path), file_(std::fopen(path.c_str(), "rb")) {
  if (!file_) throw_error("cannot open {}: {}", path.string(), std::generic_category().message(errno));
  std::error_code error;
  left_ = std::filesystem::file_size(path, error);
  if (error) throw_error("cannot read {}: {}", path.string(), error.message());
  check(magic);
}

void CheckedReader::check(std::string_view magic) {
  const std::uint64_t size = left_;
  if (size < magic.size() + sizeof(std::uint64_t)) damaged("it is too short");
  std::string found(magic.size(), '\0');
  read_values(std::span(found));
  if (found != magic) damaged(fmt::format("it does not begin with {}", magic));

  CheckedWriter::Hash hash;
  hash.add(std::as_bytes(std::span(found)));
  std::vector<std::byte> block(std::size_t{1} << 20);
  while (left_ > sizeof(std::uint64_t)) {
    const auto part = std::span(block).first(std::min<std::uint64_t>(left_ - sizeof(std::uint64_t), block.size()));
    read(part);
    hash.add(part);
  }
  if (read_number() != hash.value()) damaged("the checksum does not match");
  if (std::fseek(file_.get(), static_cast<long>(magic.size()), SEEK_SET) != 0) damaged("it cannot be read twice");
  left_ = size - magic.size() - sizeof(std::uint64_t);
}

void CheckedReader::read(std::span<std::byte> out) {
  if (out.size() > left_ || std::fread(out.data(), 1, out.size(), file_.get()) != out.size()) {
    damaged("it ends too early");
  }
  left_ -= out.size();
}

std::uint64_t CheckedReader::read_number() {
  std::uint64_t value = 0;
  read_values(std::span(&value, 1));
  return value;
}

std::string CheckedReader::read_text(std::uint64_t longest) {
  const std::uint64_t length = read_number();
  if (length > std::min(longest, left_)) damaged("a text in it is too long");
  std::string text(length, '\0');
  read_values(std::span(text));
  return text;
}

void CheckedReader::damaged(const std::string& why) const {
  throw_error("{} is damaged or of another kind: {}", path_.string(), why);
}

void CheckedReader::refused(const std::string& why) const {
  throw_error("cannot use {}: {}", path_.string(), why);
}

}  // namespace lily
