// Session::save and Session::load. The file, little-endian, each part directly after the one before:
//
//   "LILYSES1"                            8 bytes
//   header length                         uint64
//   header, JSON                          {"model": hex, "layout": str, "tokens": n, "vocab": n, "snapshots": [prefix
//   length...],
//                                          "recurrent_bytes": n, "kv_bytes_per_token": n}
//   tokens                                int32 [tokens]
//   logits, recurrent state               float32 [vocab], bytes
//   per snapshot: logits, recurrent state
//   KV                                    tokens * kv_bytes_per_token
//   XXH3-64 of everything before          uint64
//
// A file is written beside its place and renamed over it, so a crash leaves the old file or the new one. It is read
// twice: once for the checksum and the sizes, and only then into the session.
#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "session/session.h"
#include "support/error.h"

namespace lily {
namespace {

constexpr std::string_view kMagic = "LILYSES1";
constexpr std::uint64_t kLargestHeader = 1 << 20;
constexpr std::int64_t kKvTokensAtOnce = 256;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

struct FreeHash {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

class Hash {
 public:
  Hash() : state_(XXH3_createState()) { XXH3_64bits_reset(state_.get()); }
  void add(std::span<const std::byte> bytes) { XXH3_64bits_update(state_.get(), bytes.data(), bytes.size()); }
  std::uint64_t value() const { return XXH3_64bits_digest(state_.get()); }

 private:
  std::unique_ptr<XXH3_state_t, FreeHash> state_;
};

/// Writes to `path`.tmp with a running checksum; finish() makes it durable and renames it.
class Writer {
 public:
  explicit Writer(const std::filesystem::path& path) : path_(path), temporary_(path.string() + ".tmp") {
    file_.reset(std::fopen(temporary_.c_str(), "wb"));
    if (!file_) failed("create");
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  ~Writer() {
    file_.reset();
    std::error_code ignored;
    if (!finished_) std::filesystem::remove(temporary_, ignored);
  }

  void write(std::span<const std::byte> bytes) {
    hash_.add(bytes);
    put(bytes);
  }
  template <typename T>
  void write_values(std::span<const T> values) {
    write(std::as_bytes(values));
  }
  void write_number(std::uint64_t value) { write_values(std::span<const std::uint64_t>(&value, 1)); }

  void finish() {
    const std::uint64_t checksum = hash_.value();
    put(std::as_bytes(std::span(&checksum, 1)));
    if (std::fflush(file_.get()) != 0 || fsync(fileno(file_.get())) != 0) failed("write");
    file_.reset();
    std::filesystem::rename(temporary_, path_);
    finished_ = true;
  }

 private:
  void put(std::span<const std::byte> bytes) {
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) failed("write");
  }
  [[noreturn]] void failed(const char* what) const {
    throw_error("cannot {} {}: {}", what, temporary_.string(), std::generic_category().message(errno));
  }

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  File file_;
  Hash hash_;
  bool finished_ = false;
};

class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : path_(path), file_(std::fopen(path.c_str(), "rb")) {
    if (!file_) throw_error("cannot open {}: {}", path.string(), std::generic_category().message(errno));
    std::error_code error;
    size_ = std::filesystem::file_size(path, error);
    if (error) throw_error("cannot read {}: {}", path.string(), error.message());
  }

  std::uint64_t size() const { return size_; }
  void read(std::span<std::byte> out) {
    if (std::fread(out.data(), 1, out.size(), file_.get()) != out.size()) damaged("it ends too early");
  }
  template <typename T>
  void read_values(std::span<T> out) {
    read(std::as_writable_bytes(out));
  }
  std::uint64_t read_number() {
    std::uint64_t value = 0;
    read_values(std::span(&value, 1));
    return value;
  }
  void check_sum() {
    Hash hash;
    std::vector<std::byte> block(std::size_t{1} << 20);
    if (size_ < sizeof(std::uint64_t)) damaged("it is too short");
    for (std::uint64_t left = size_ - sizeof(std::uint64_t); left > 0;) {
      const auto part = std::span(block).first(std::min<std::uint64_t>(left, block.size()));
      read(part);
      hash.add(part);
      left -= part.size();
    }
    if (read_number() != hash.value()) damaged("the checksum does not match");
    std::rewind(file_.get());
  }
  [[noreturn]] void damaged(const std::string& why) const {
    throw_error("{} is not a whole session file: {}", path_.string(), why);
  }
  [[noreturn]] void refused(const std::string& why) const { throw_error("cannot load {}: {}", path_.string(), why); }

 private:
  std::filesystem::path path_;
  File file_;
  std::uint64_t size_ = 0;
};

struct Header {
  std::string model;
  std::string layout;
  std::uint64_t tokens = 0;
  std::uint64_t vocab = 0;
  std::vector<std::int64_t> snapshots;
  std::uint64_t recurrent_bytes = 0;
  std::uint64_t kv_bytes_per_token = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Header, model, layout, tokens, vocab, snapshots, recurrent_bytes, kv_bytes_per_token)

Header read_header(Reader& file) {
  std::string magic(kMagic.size(), '\0');
  file.read_values(std::span(magic));
  if (magic != kMagic) file.damaged("it does not begin with " + std::string(kMagic));
  const std::uint64_t length = file.read_number();
  if (length > kLargestHeader) file.damaged("its header is too large");
  std::string text(length, '\0');
  file.read_values(std::span(text));
  try {
    return nlohmann::json::parse(text).get<Header>();
  } catch (const nlohmann::json::exception& error) {
    file.damaged(error.what());
  }
}

/// The header must be what this session would write, but for tokens and snapshots; these must be possible.
void check_header(const Reader& file, const Header& found, const Header& expected, std::int64_t capacity) {
  if (found.model != expected.model) file.refused("it was saved with another checkpoint");
  if (found.layout != expected.layout) {
    file.refused(fmt::format("its state layout is {}, this device's is {}", found.layout, expected.layout));
  }
  if (found.vocab != expected.vocab || found.recurrent_bytes != expected.recurrent_bytes ||
      found.kv_bytes_per_token != expected.kv_bytes_per_token) {
    file.damaged("its sizes are not those of the model");
  }
  if (found.tokens == 0) file.damaged("it holds no tokens");
  if (found.tokens > static_cast<std::uint64_t>(capacity)) {
    file.refused(fmt::format("it holds {} tokens, the context is {}", found.tokens, capacity));
  }
  std::int64_t previous = 0;
  for (const std::int64_t position : found.snapshots) {
    if (position <= previous || position > static_cast<std::int64_t>(found.tokens)) {
      file.damaged("a snapshot lies outside the tokens");
    }
    previous = position;
  }
  const std::uint64_t state_bytes = found.vocab * sizeof(float) + found.recurrent_bytes;
  const std::uint64_t body = found.tokens * (sizeof(std::int32_t) + found.kv_bytes_per_token) +
                             (1 + found.snapshots.size()) * state_bytes + sizeof(std::uint64_t);
  if (file.size() < body) file.damaged("it is too short for what it says to hold");
}

Header header_of(const SequenceState& state, std::int64_t vocab, std::uint64_t model_id) {
  return {.model = fmt::format("{:016x}", model_id),
          .layout = state.layout(),
          .tokens = 0,
          .vocab = static_cast<std::uint64_t>(vocab),
          .snapshots = {},
          .recurrent_bytes = state.recurrent_bytes(),
          .kv_bytes_per_token = state.kv_bytes_per_token()};
}

Snapshot read_snapshot(Reader& file, const Header& header) {
  Snapshot snapshot;
  snapshot.logits.resize(header.vocab);
  snapshot.recurrent.resize(header.recurrent_bytes);
  file.read_values(std::span(snapshot.logits));
  file.read(snapshot.recurrent);
  return snapshot;
}

}  // namespace

void Session::save(const std::filesystem::path& path, std::uint64_t model_id) const {
  if (tokens_.empty()) throw_error("cannot save {}: the session is empty", path.string());
  Header header = header_of(*state_, model_.config.vocab_size, model_id);
  header.tokens = tokens_.size();
  header.snapshots = snapshot_positions();
  const std::string text = nlohmann::json(header).dump();

  Writer file(path);
  file.write_values(std::span(kMagic));
  file.write_number(text.size());
  file.write_values(std::span<const char>(text));
  file.write_values(std::span(tokens_));
  std::vector<std::byte> recurrent(state_->recurrent_bytes());
  state_->read_recurrent(recurrent);
  file.write_values(std::span(logits_));
  file.write(recurrent);
  for (const auto& [position, kept] : snapshots_) {
    file.write_values(std::span(kept.snapshot.logits));
    file.write(kept.snapshot.recurrent);
  }
  const auto length = static_cast<std::int64_t>(tokens_.size());
  std::vector<std::byte> kv;
  for (std::int64_t begin = 0; begin < length; begin += kKvTokensAtOnce) {
    const std::int64_t end = std::min(length, begin + kKvTokensAtOnce);
    kv.resize(static_cast<std::size_t>(end - begin) * header.kv_bytes_per_token);
    state_->read_kv(begin, end, kv);
    file.write(kv);
  }
  file.finish();
}

void Session::load(const std::filesystem::path& path, std::uint64_t model_id) {
  Reader file(path);
  file.check_sum();
  const Header header = read_header(file);
  check_header(file, header, header_of(*state_, model_.config.vocab_size, model_id), limits_.capacity);
  std::vector<std::int32_t> tokens(header.tokens);
  file.read_values(std::span(tokens));
  check_tokens(tokens);

  reset();  // from here on only the file's reading can fail, which was done once already
  Snapshot now = read_snapshot(file, header);
  for (const std::int64_t position : header.snapshots) {
    Snapshot snapshot = read_snapshot(file, header);
    if (snapshot.bytes() <= limits_.snapshot_bytes) keep(position, std::move(snapshot));
  }
  std::vector<std::byte> kv;
  const auto length = static_cast<std::int64_t>(tokens.size());
  for (std::int64_t begin = 0; begin < length; begin += kKvTokensAtOnce) {
    const std::int64_t end = std::min(length, begin + kKvTokensAtOnce);
    kv.resize(static_cast<std::size_t>(end - begin) * header.kv_bytes_per_token);
    file.read(kv);
    state_->write_kv(begin, end, kv);
  }
  state_->write_recurrent(now.recurrent);
  logits_ = std::move(now.logits);
  tokens_ = std::move(tokens);
}

}  // namespace lily
