// Session::save and Session::load. The content of the file (frame and checksum: support/checked_file.h), little-endian:
//
//   header                                   length uint64, then JSON: the fields of Header below
//   tokens                                   int32 [tokens]
//   logits, recurrent state                  float32 [vocab], bytes
//   logits, recurrent state per snapshot
//   KV                                       tokens * kv_bytes_per_token
#include <algorithm>
#include <nlohmann/json.hpp>

#include "session/session.h"
#include "support/checked_file.h"
#include "support/error.h"

namespace lily {
namespace {

constexpr std::string_view kMagic = "LILYSES1";
constexpr std::uint64_t kLongestHeader = 1 << 20;
constexpr std::int64_t kKvTokensAtOnce = 256;

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

Header read_header(CheckedReader& file) {
  const std::string text = file.read_text(kLongestHeader);
  try {
    return nlohmann::json::parse(text).get<Header>();
  } catch (const nlohmann::json::exception& error) {
    file.damaged(error.what());
  }
}

/// The header must be what this session would write, but for tokens and snapshots; these must be possible.
void check_header(const CheckedReader& file, const Header& found, const Header& expected, std::int64_t capacity) {
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
  const std::uint64_t body =
      found.tokens * (sizeof(std::int32_t) + found.kv_bytes_per_token) + (1 + found.snapshots.size()) * state_bytes;
  if (file.left() != body) file.damaged("its size is not that of what it says to hold");
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

std::shared_ptr<const Snapshot> read_snapshot(CheckedReader& file, const Header& header) {
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->logits.resize(header.vocab);
  snapshot->recurrent.resize(header.recurrent_bytes);
  file.read_values(std::span(snapshot->logits));
  file.read(snapshot->recurrent);
  return snapshot;
}

}  // namespace

void Session::save(const std::filesystem::path& path, std::uint64_t model_id) const {
  if (tokens_.empty()) throw_error("cannot save {}: the session is empty", path.string());
  Header header = header_of(*state_, model_.config.vocab_size, model_id);
  header.tokens = tokens_.size();
  header.snapshots = snapshot_positions();
  CheckedWriter file(path, kMagic);
  file.write_text(nlohmann::json(header).dump());
  file.write_values(std::span<const std::int32_t>(tokens_));
  std::vector<std::byte> recurrent(state_->recurrent_bytes());
  state_->read_recurrent(recurrent);
  file.write_values(std::span<const float>(logits_));
  file.write(recurrent);
  for (const auto& [position, kept] : snapshots_) {
    file.write_values(std::span(kept.snapshot->logits));
    file.write(kept.snapshot->recurrent);
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
  CheckedReader file(path, kMagic);
  const Header header = read_header(file);
  check_header(file, header, header_of(*state_, model_.config.vocab_size, model_id), limits_.capacity);
  std::vector<std::int32_t> tokens(header.tokens);
  file.read_values(std::span(tokens));
  check_tokens(tokens);

  reset();  // from here on only the file's reading can fail, which was done once already
  const std::shared_ptr<const Snapshot> now = read_snapshot(file, header);
  for (const std::int64_t position : header.snapshots) keep(position, read_snapshot(file, header));
  std::vector<std::byte> kv;
  const auto length = static_cast<std::int64_t>(tokens.size());
  for (std::int64_t begin = 0; begin < length; begin += kKvTokensAtOnce) {
    const std::int64_t end = std::min(length, begin + kKvTokensAtOnce);
    kv.resize(static_cast<std::size_t>(end - begin) * header.kv_bytes_per_token);
    file.read(kv);
    state_->write_kv(begin, end, kv);
  }
  state_->write_recurrent(now->recurrent);
  logits_ = now->logits;
  tokens_ = std::move(tokens);
}

}  // namespace lily
