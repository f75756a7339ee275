// tokenizer.json, read and checked. Files may be hostile: whatever does not fit is an Error naming file, field, found
// and expected.
//
//   added_tokens   [{id, content, ...}]           no stripping, no normalisation, no whole-word rule
//   normalizer     {type: NFC}
//   pre_tokenizer  Sequence of Split(kSplitPattern, Isolated) and ByteLevel without its own pattern
//   decoder        {type: ByteLevel}
//   model          {type: BPE, vocab: {spelling: id}, merges: ["a b", ...] or [["a", "b"], ...]}
//
// Spellings are byte-level: each of the 256 bytes has one printable character. Truncation, padding and the
// post-processor are not read: lily bounds its own contexts and the chat format writes every token itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lily {

struct Merge {
  std::int32_t left, right, result;
};

/// The bytes of pieces, one after another. [ids]
class PieceBytes {
 public:
  std::string_view operator[](std::size_t id) const {
    return std::string_view(text_).substr(begin_[id], begin_[id + 1] - begin_[id]);
  }
  std::size_t size() const { return begin_.size() - 1; }
  void push_back(std::string_view bytes) {
    text_ += bytes;
    begin_.push_back(text_.size());
  }
  void reserve(std::size_t pieces, std::size_t bytes) {
    begin_.reserve(pieces + 1);
    text_.reserve(bytes);
  }

 private:
  std::string text_;
  std::vector<std::size_t> begin_{0};
};

struct TokenizerFile {
  PieceBytes pieces;           // every id below pieces.size() has a token; added tokens give their spelling
  std::vector<bool> added;     // [pieces.size()]
  std::vector<Merge> merges;   // in order of rank; no result is an added token
  bool ignore_merges = false;  // a word that is a piece is that piece, whatever the merges say
};

/// Parses the text of a tokenizer.json; `source` names it in errors.
TokenizerFile parse_tokenizer_file(std::string_view json, std::string_view source);

}  // namespace lily
