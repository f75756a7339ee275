// Byte-level BPE from tokenizer.json: NFC, the model's split pattern, merges, added tokens.
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

class Tokenizer {
 public:
  /// Reads `directory`/tokenizer.json. Errors name the file, the field, found and expected.
  static Tokenizer open(const std::filesystem::path& directory);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Ordinary text: spellings of added tokens in it stay text.
  std::vector<std::int32_t> encode_text(std::string_view text) const;
  /// Text in which spellings of added tokens become them, as Hugging Face's encode does.
  std::vector<std::int32_t> encode_with_control(std::string_view text) const;
  /// Rendered chat: control pieces become their token, the text between them is encoded as ordinary text.
  std::vector<std::int32_t> encode(const Pieces& pieces) const;

  /// The bytes of one token; added tokens give their spelling, ids without a token give nothing.
  std::string_view bytes(std::int32_t id) const;
  std::string decode(std::span<const std::int32_t> ids) const;
  /// The id of an added token by its spelling, e.g. "<|im_end|>".
  std::optional<std::int32_t> added_token(std::string_view spelling) const;
  bool is_added(std::int32_t id) const;
  /// Number of ids that have a token: ids at or above it are padding and are never sampled.
  std::int32_t size() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Streaming decode: bytes are held back until they are whole UTF-8 characters; invalid bytes become U+FFFD.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  /// The text that became complete with this token; may be empty.
  std::string push(std::int32_t id);
  /// What is still held back, as U+FFFD.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;
};

}  // namespace lily
