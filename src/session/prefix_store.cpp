#include "session/prefix_store.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>

#include "support/checked_file.h"
#include "support/error.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefixMagic = "LILYPFX1";
constexpr std::string_view kBlockMagic = "LILYKVB1";
constexpr std::size_t kMaxQueued = 16;

std::string prefix_name(const PrefixKey& key, std::int64_t length) {
  return fmt::format("{}-{}.prefix", key.hex(), length);
}
std::string block_name(const PrefixKey& key) {
  return key.hex() + ".kv";
}

/// The length in a prefix file's name; none for other files.
std::optional<std::int64_t> length_in_name(std::string_view name) {
  constexpr std::size_t kKeyLength = 32;
  constexpr std::string_view kEnding = ".prefix";
  if (name.size() <= kKeyLength + 1 + kEnding.size() || name[kKeyLength] != '-' || !name.ends_with(kEnding)) return {};
  const std::string_view digits = name.substr(kKeyLength + 1, name.size() - kKeyLength - 1 - kEnding.size());
  std::int64_t length = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), length);
  if (error != std::errc() || end != digits.data() + digits.size() || length <= 0) return {};
  return length;
}

/// The tokens at the head of a prefix file; none when they are not those of its name. The checksum, which needs all of
/// the file, is looked at when it is loaded.
std::vector<std::int32_t> tokens_at_head(const fs::path& path, std::int64_t length, std::size_t file_bytes) {
  const auto count = static_cast<std::size_t>(length);
  if (count > file_bytes / sizeof(std::int32_t)) return {};
  std::ifstream file(path, std::ios::binary);
  std::array<char, kPrefixMagic.size()> magic{};
  std::vector<std::int32_t> tokens(count);
  file.read(magic.data(), magic.size());
  file.read(reinterpret_cast<char*>(tokens.data()), static_cast<std::streamsize>(count * sizeof(std::int32_t)));
  if (!file || prefix_name(prefix_key(tokens), length) != path.filename()) return {};
  return tokens;
}

}  // namespace

PrefixStore::PrefixStore(const fs::path& directory, const Shape& shape, std::size_t budget_bytes)
    : directory_(directory / fmt::format("{:016x}-{}", shape.model_id, shape.layout)),
      shape_(shape),
      budget_(budget_bytes) {
  std::error_code error;
  fs::create_directories(directory_, error);
  if (error) throw_error("cannot create the cache directory {}: {}", directory_.string(), error.message());
  scan();
  evict();
  writer_ = std::thread([this] { write_queued(); });
}

PrefixStore::~PrefixStore() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  writer_.join();
}

void PrefixStore::scan() {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_, error)) {
    const std::string name = entry.path().filename().string();
    const auto length = length_in_name(name);
    if (!length && !name.ends_with(".kv")) {
      std::error_code ignored;
      if (name.ends_with(".tmp")) fs::remove(entry.path(), ignored);  // a writer died here
      continue;
    }
    std::error_code gone;
    FileEntry file{.bytes = entry.file_size(gone), .last_use = entry.last_write_time(gone)};
    if (gone) continue;
    if (length) file.tokens = tokens_at_head(entry.path(), *length, file.bytes);
    const bool damaged = length && file.tokens.empty();
    bytes_ += file.bytes;
    files_[name] = std::move(file);
    if (length) ++lengths_[*length];
    if (damaged) forget(name);
  }
  if (error) throw_error("cannot read the cache directory {}: {}", directory_.string(), error.message());
}

std::size_t PrefixStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::shared_ptr<const CachedPrefix> PrefixStore::find(std::span<const std::int32_t> tokens, std::int64_t longer_than) {
  const std::lock_guard lock(mutex_);
  std::vector<std::int64_t> lengths;
  for (const auto& [length, count] : lengths_) {
    if (length > longer_than && length <= static_cast<std::int64_t>(tokens.size())) lengths.push_back(length);
  }
  const std::vector<PrefixKey> keys = prefix_keys(tokens, lengths);
  for (std::size_t i = lengths.size(); i-- > 0;) {
    const std::string name = prefix_name(keys[i], lengths[i]);
    if (!files_.contains(name)) continue;
    const auto wanted = tokens.first(static_cast<std::size_t>(lengths[i]));
    try {
      auto prefix = load(name, wanted);
      renew(name);
      for (const PrefixKey& key : block_keys(wanted)) renew(block_name(key));
      return prefix;
    } catch (const Error&) {
      forget(name);
    }
  }
  return nullptr;
}

PrefixStore::Nearest PrefixStore::nearest(std::span<const std::int32_t> tokens) const {
  const std::lock_guard lock(mutex_);
  Nearest nearest;
  for (const auto& [name, file] : files_) {
    const auto common = std::ranges::mismatch(file.tokens, tokens).in1 - file.tokens.begin();
    const bool goes_on = common < std::ssize(file.tokens);
    if (common < nearest.common || (common == nearest.common && (nearest.known_token || !goes_on))) continue;
    nearest.common = common;
    nearest.known_token.reset();
    if (goes_on) nearest.known_token = file.tokens[static_cast<std::size_t>(common)];
  }
  return nearest;
}

std::shared_ptr<CachedPrefix> PrefixStore::load(const std::string& name, std::span<const std::int32_t> tokens) {
  CheckedReader file(directory_ / name, kPrefixMagic);
  auto prefix = std::make_shared<CachedPrefix>();
  auto snapshot = std::make_shared<Snapshot>();
  prefix->tokens.resize(tokens.size());
  snapshot->recurrent.resize(shape_.recurrent_bytes);
  snapshot->logits.resize(shape_.vocab);
  file.read_values(std::span(prefix->tokens));
  file.read(snapshot->recurrent);
  file.read_values(std::span(snapshot->logits));
  if (file.left() != 0) file.damaged("it is too long");
  if (!std::ranges::equal(prefix->tokens, tokens)) file.damaged("its tokens are not those of its name");
  prefix->snapshot = std::move(snapshot);

  std::size_t tokens_left = tokens.size();
  for (const PrefixKey& key : block_keys(tokens)) {
    const std::size_t block_tokens = std::min<std::size_t>(tokens_left, kKvBlockTokens);
    prefix->blocks.push_back(load_block(block_name(key), block_tokens * shape_.kv_bytes_per_token));
    tokens_left -= block_tokens;
  }
  return prefix;
}

std::shared_ptr<const KvBlock> PrefixStore::load_block(const std::string& name, std::size_t bytes) {
  try {
    auto block = std::make_shared<KvBlock>(bytes);
    CheckedReader file(directory_ / name, kBlockMagic);
    file.read(*block);
    if (file.left() != 0) file.damaged("it is too long");
    return block;
  } catch (const Error&) {
    forget(name);  // so that it is written anew
    throw;
  }
}

void PrefixStore::insert(std::shared_ptr<const CachedPrefix> prefix) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(prefix));
  if (queue_.size() > kMaxQueued) queue_.pop_front();
  changed_.notify_all();
}

void PrefixStore::flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return queue_.empty() && !writing_; });
}

void PrefixStore::write_queued() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const auto prefix = std::move(queue_.front());
    queue_.pop_front();
    writing_ = true;
    lock.unlock();
    try {
      write(*prefix);
    } catch (const std::exception&) {
      // A full or vanished disk makes this tier smaller; it must not end a reply. What was written stays valid.
    }
    lock.lock();
    evict();
    writing_ = false;
    changed_.notify_all();
  }
}

void PrefixStore::write(const CachedPrefix& prefix) {
  const auto write_file = [&](const std::string& name, std::string_view magic, const auto& write_content) {
    {
      const std::lock_guard lock(mutex_);
      if (files_.contains(name)) return renew(name);
    }
    CheckedWriter file(directory_ / name, magic);
    write_content(file);
    file.finish();
    const std::lock_guard lock(mutex_);
    FileEntry entry{.bytes = fs::file_size(directory_ / name), .last_use = fs::file_time_type::clock::now()};
    bytes_ += entry.bytes;
    if (const auto length = length_in_name(name)) {
      ++lengths_[*length];
      entry.tokens = prefix.tokens;
    }
    files_[name] = std::move(entry);
  };
  // Blocks first: a prefix file is there only when what it needs is.
  const std::vector<PrefixKey> keys = block_keys(prefix.tokens);
  for (std::size_t b = 0; b < keys.size(); ++b) {
    write_file(block_name(keys[b]), kBlockMagic, [&](CheckedWriter& file) { file.write(*prefix.blocks[b]); });
  }
  write_file(prefix_name(keys.back(), prefix.length()), kPrefixMagic, [&](CheckedWriter& file) {
    file.write_values(std::span<const std::int32_t>(prefix.tokens));
    file.write(prefix.snapshot->recurrent);
    file.write_values(std::span<const float>(prefix.snapshot->logits));
  });
}

/// The file's time on disk carries its last use over a restart.
void PrefixStore::renew(const std::string& name) {
  const auto found = files_.find(name);
  if (found == files_.end()) return;
  found->second.last_use = fs::file_time_type::clock::now();
  std::error_code ignored;
  fs::last_write_time(directory_ / name, found->second.last_use, ignored);
}

void PrefixStore::forget(const std::string& name) {
  const auto found = files_.find(name);
  if (found == files_.end()) return;
  bytes_ -= found->second.bytes;
  files_.erase(found);
  if (const auto length = length_in_name(name); length && --lengths_[*length] == 0) lengths_.erase(*length);
  std::error_code ignored;
  fs::remove(directory_ / name, ignored);
}

void PrefixStore::evict() {
  while (bytes_ > budget_) {
    const auto oldest = std::min_element(files_.begin(), files_.end(), [](const auto& a, const auto& b) {
      return a.second.last_use < b.second.last_use;
    });
    forget(std::string(oldest->first));
  }
}

}  // namespace lily
