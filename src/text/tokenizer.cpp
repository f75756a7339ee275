#include "text/tokenizer.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <utility>

#include "support/error.h"
#include "support/mapped_file.h"
#include "text/bpe.h"
#include "text/piece_index.h"
#include "text/split.h"
#include "text/tokenizer_file.h"
#include "text/unicode.h"

namespace lily {
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxFileBytes = std::size_t{512} << 20;

/// Added tokens by spelling, and the longest one that begins at a place in a text.
class AddedTokens {
 public:
  explicit AddedTokens(const TokenizerFile& file) {
    for (std::size_t id = 0; id < file.pieces.size(); ++id) {
      if (!file.added[id]) continue;
      const std::string_view spelling = file.pieces[id];
      ids_.emplace(spelling, static_cast<std::int32_t>(id));
      auto& lengths = lengths_[static_cast<unsigned char>(spelling.front())];
      if (std::find(lengths.begin(), lengths.end(), spelling.size()) == lengths.end())
        lengths.push_back(spelling.size());
    }
    for (auto& lengths : lengths_) std::sort(lengths.begin(), lengths.end(), std::greater<>());
  }

  std::optional<std::int32_t> find(std::string_view spelling) const {
    const auto found = ids_.find(spelling);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<std::int32_t> longest_at(std::string_view text, std::size_t at) const {
    for (const std::size_t length : lengths_[static_cast<unsigned char>(text[at])]) {
      if (length > text.size() - at) continue;
      if (const auto id = find(text.substr(at, length))) return id;
    }
    return std::nullopt;
  }

 private:
  std::map<std::string, std::int32_t, std::less<>> ids_;
  std::array<std::vector<std::size_t>, 256> lengths_;  // by first byte, longest first
};

std::array<std::int32_t, 256> byte_tokens(const TokenizerFile& file, std::string_view source) {
  std::array<std::int32_t, 256> tokens;
  tokens.fill(-1);
  for (std::size_t id = 0; id < file.pieces.size(); ++id) {
    const std::string_view piece = file.pieces[id];
    if (piece.size() == 1 && !file.added[id]) {
      tokens[static_cast<unsigned char>(piece.front())] = static_cast<std::int32_t>(id);
    }
  }
  for (std::size_t byte = 0; byte < tokens.size(); ++byte) {
    if (tokens[byte] < 0) throw_error("{}: model.vocab has no piece for byte 0x{:02X}", source, byte);
  }
  return tokens;
}

/// Appends the whole characters at the beginning of `bytes`, with U+FFFD for invalid ones; returns how many bytes that
/// were. What is left is the beginning of a character.
std::size_t append_characters(std::string_view bytes, std::string& out) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Char c = decode_utf8(bytes, at);
    if (c.state == Utf8State::kIncomplete) break;
    out.append(c.state == Utf8State::kValid ? bytes.substr(at, c.length) : kReplacement);
    at += c.length;
  }
  return at;
}

}  // namespace

struct Tokenizer::Impl {
  Impl(TokenizerFile from, std::string_view source)
      : file(std::move(from)), added(file), bpe(byte_tokens(file, source), file.merges) {
    file.merges = {};
    if (!file.ignore_merges) return;
    whole_words = PieceIndex(file.pieces.size());
    for (std::size_t id = 0; id < file.pieces.size(); ++id) {
      if (!file.added[id]) whole_words.insert(file.pieces[id], static_cast<std::int32_t>(id));
    }
  }

  void encode_text(std::string_view text, std::vector<std::int32_t>& out) const {
    if (text.size() > kMaxTextBytes) {
      throw_error("a text of {} bytes is too long to tokenize at once, the limit is {}", text.size(), kMaxTextBytes);
    }
    std::string normalized;
    if (!is_ascii(text)) {
      normalized = normalize_nfc(replace_invalid_utf8(text));
      text = normalized;
    }
    WordSplitter words(text);
    for (std::string_view word = words.next(); !word.empty(); word = words.next()) encode_word(word, out);
  }

  void encode_word(std::string_view word, std::vector<std::int32_t>& out) const {
    if (file.ignore_merges) {
      if (const std::int32_t id = whole_words.find(word); id >= 0) {
        out.push_back(id);
        return;
      }
    }
    bpe.encode(word, out);
  }

  TokenizerFile file;
  AddedTokens added;
  Bpe bpe;
  PieceIndex whole_words;  // only for ignore_merges; views into `file`
};

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::open(const std::filesystem::path& directory) {
  const MappedFile file(directory / "tokenizer.json");
  const auto bytes = file.bytes();
  return parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file.path().string());
}

Tokenizer Tokenizer::parse(std::string_view json, std::string_view source) {
  if (json.size() > kMaxFileBytes) {
    throw_error("{}: {} bytes, expected at most {}", source, json.size(), kMaxFileBytes);
  }
  return Tokenizer(std::make_unique<const Impl>(parse_tokenizer_file(json, source), source));
}

std::vector<std::int32_t> Tokenizer::encode_text(std::string_view text) const {
  std::vector<std::int32_t> ids;
  impl_->encode_text(text, ids);
  return ids;
}

std::vector<std::int32_t> Tokenizer::encode_with_control(std::string_view text) const {
  std::vector<std::int32_t> ids;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto id = impl_->added.longest_at(text, at);
    if (!id) {
      ++at;
      continue;
    }
    impl_->encode_text(text.substr(begin, at - begin), ids);
    ids.push_back(*id);
    at += bytes(*id).size();
    begin = at;
  }
  impl_->encode_text(text.substr(begin), ids);
  return ids;
}

std::vector<std::int32_t> Tokenizer::encode(const Pieces& pieces) const {
  std::vector<std::int32_t> ids;
  std::string text;
  for (const Piece& piece : pieces) {
    if (!piece.control && piece.tokens.empty()) {
      text += piece.text;
      continue;
    }
    impl_->encode_text(text, ids);
    text.clear();
    if (!piece.tokens.empty()) {
      ids.insert(ids.end(), piece.tokens.begin(), piece.tokens.end());
    } else if (const auto id = added_token(piece.text)) {
      ids.push_back(*id);
    } else {
      throw Error(fmt::format("the tokenizer has no added token '{}'", piece.text),
                  "the model's tokenizer.json is not that of a Qwen3.6 chat model");
    }
  }
  impl_->encode_text(text, ids);
  return ids;
}

std::string_view Tokenizer::bytes(std::int32_t id) const {
  return id < 0 || id >= size() ? std::string_view() : impl_->file.pieces[static_cast<std::size_t>(id)];
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string raw;
  for (const std::int32_t id : ids) raw += bytes(id);
  return replace_invalid_utf8(raw);
}

std::optional<std::int32_t> Tokenizer::added_token(std::string_view spelling) const {
  return impl_->added.find(spelling);
}

bool Tokenizer::is_added(std::int32_t id) const {
  return id >= 0 && id < size() && impl_->file.added[static_cast<std::size_t>(id)];
}

std::int32_t Tokenizer::size() const {
  return static_cast<std::int32_t>(impl_->file.pieces.size());
}

std::string StreamDecoder::push(std::int32_t id) {
  pending_ += tokenizer_->bytes(id);
  std::string text;
  pending_.erase(0, append_characters(pending_, text));
  return text;
}

std::string StreamDecoder::finish() {
  std::string text = replace_invalid_utf8(pending_);
  pending_.clear();
  return text;
}

}  // namespace lily
