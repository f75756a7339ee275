// Byte-level BPE from tokenizer.json: NFC, the model's split pattern, merges, added tokens.
//
// Equal to Hugging Face's tokenizers (encode with add_special_tokens=False, decode with skip_special_tokens=False),
// but for two choices of lily: ordinary text never becomes a control token, whatever it spells, and input that is not
// UTF-8 is taken with U+FFFD in place of the invalid bytes (as Python's errors="replace" does) instead of refused.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/piece.h"

namespace lily {

/// Immutable once made: any number of threads may use it.
class Tokenizer {
 public:
  /// Reads `directory`/tokenizer.json. Errors name the file, the field, found and expected.
  static Tokenizer open(const std::filesystem::path& directory);
  /// From the text of a tokenizer.json; `source` names it in errors.
  static Tokenizer parse(std::string_view json, std::string_view source);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Ordinary text: spellings of added tokens in it stay text. Error above 256 MiB.
  std::vector<std::int32_t> encode_text(std::string_view text) const;
  /// Text in which spellings of added tokens become them, as Hugging Face's encode does.
  std::vector<std::int32_t> encode_with_control(std::string_view text) const;
  /// Rendered chat: control pieces become their token, pieces with known tokens are these, the text between them is
  /// encoded as ordinary text. Error where the tokenizer lacks a control piece.
  std::vector<std::int32_t> encode(const Pieces& pieces) const;

  /// The bytes of one token; added tokens give their spelling, ids without a token give nothing.
  std::string_view bytes(std::int32_t id) const;
  /// Valid UTF-8: bytes that are no characters become U+FFFD.
  std::string decode(std::span<const std::int32_t> ids) const;
  /// The id of an added token by its spelling, e.g. "<|im_end|>".
  std::optional<std::int32_t> added_token(std::string_view spelling) const;
  bool is_added(std::int32_t id) const;
  /// Number of tokens, which have the ids below it: ids at or above it are padding and are never sampled.
  std::int32_t size() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

/// Streaming decode: bytes are held back until they are whole UTF-8 characters; invalid bytes become U+FFFD. All that
/// push and finish return is together what Tokenizer::decode makes of the same ids.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  /// The text that became complete with this token; may be empty. Always valid UTF-8.
  std::string push(std::int32_t id);
  /// What is still held back, as U+FFFD. The decoder is then as new.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;  // the beginning of one character, at most 3 bytes
};

}  // namespace lily
