// Two steps. A streaming parse takes vocab and merges, nearly all of the file, straight into flat arrays as bytes, and
// everything else into a JSON value. Then each field is checked and the pieces of merges become ids.
#include "text/tokenizer_file.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "support/error.h"
#include "text/piece_index.h"
#include "text/split.h"
#include "text/unicode.h"

namespace lily {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxAddedBytes = 256;
constexpr std::size_t kMaxDepth = 32;
constexpr const char* kHint = "lily reads the tokenizer.json of Qwen3.6 models; download the file again if it is one";

/// For error messages: hostile text cut short and made printable.
std::string snippet(std::string_view text, std::size_t limit = 40) {
  const json cut = replace_invalid_utf8(text.substr(0, limit));
  return cut.dump(-1, ' ', true) + (text.size() > limit ? "..." : "");
}

/// Byte-level spelling: printable bytes of Latin-1 are their own character, the others follow from U+0100 on.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    bytes_.fill(-1);
    std::size_t next = 0x100;
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      bytes_[printable ? byte : next++] = static_cast<std::int16_t>(byte);
    }
  }
  /// Appends the bytes that `spelling` stands for; false where a character is not of the alphabet.
  bool append_bytes(std::string_view spelling, std::string& out) const {
    for (std::size_t at = 0; at < spelling.size();) {
      const Utf8Char c = decode_utf8(spelling, at);
      if (c.state != Utf8State::kValid || c.code_point >= bytes_.size() || bytes_[c.code_point] < 0) return false;
      out.push_back(static_cast<char>(bytes_[c.code_point]));
      at += c.length;
    }
    return true;
  }

 private:
  std::array<std::int16_t, 0x144> bytes_;
};

/// The file after the first step.
struct RawFile {
  struct Piece {
    std::size_t begin, end;  // in `text`
    std::int32_t id;
  };
  struct RawMerge {
    std::size_t begin, middle, end;  // in `text`: left [begin, middle), right [middle, end)
  };
  std::string text;
  std::vector<Piece> vocab;
  std::vector<RawMerge> merges;
  json rest;  // the file without model.vocab and model.merges

  std::string_view bytes(std::size_t begin, std::size_t end) const {
    return std::string_view(text).substr(begin, end - begin);
  }
};

/// nlohmann's events into a RawFile.
class Reader : public nlohmann::json_sax<json> {
 public:
  Reader(RawFile& file, std::string_view source) : file_(file), source_(source) {}

  bool null() override { return value(nullptr); }
  bool boolean(bool flag) override { return value(flag); }
  bool number_float(number_float_t number, const string_t&) override { return value(number); }
  bool binary(binary_t&) override { return false; }
  bool number_integer(number_integer_t number) override {
    return state_ == State::kVocab ? vocab_id(number) : value(number);
  }
  bool number_unsigned(number_unsigned_t number) override {
    constexpr auto kMax = std::numeric_limits<std::int32_t>::max();
    if (state_ != State::kVocab) return value(number);
    return vocab_id(number > static_cast<number_unsigned_t>(kMax) ? -1 : static_cast<number_integer_t>(number));
  }
  bool string(string_t& text) override {
    if (state_ == State::kMerges) return merge_string(text);
    if (state_ == State::kMergePair) return merge_half(text);
    return value(text);
  }
  bool key(string_t& name) override {
    if (state_ == State::kVocab) return vocab_piece(name);
    key_ = name;
    return true;
  }
  bool start_object(std::size_t) override {
    if (state_ == State::kRest && in_model() && key_ == "vocab") return enter(State::kVocab, seen_vocab_, "vocab");
    return open(json::object());
  }
  bool end_object() override { return close(State::kVocab); }
  bool start_array(std::size_t) override {
    if (state_ == State::kRest && in_model() && key_ == "merges") return enter(State::kMerges, seen_merges_, "merges");
    if (state_ == State::kMerges) {
      state_ = State::kMergePair;
      halves_ = 0;
      file_.merges.push_back({file_.text.size(), file_.text.size(), file_.text.size()});
      return true;
    }
    return open(json::array());
  }
  bool end_array() override {
    if (state_ != State::kMergePair) return close(State::kMerges);
    if (halves_ != 2) fail("model.merges[{}] has {} pieces, expected 2", file_.merges.size() - 1, halves_);
    state_ = State::kMerges;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const json::exception& error) override {
    throw Error(fmt::format("{}: not valid JSON: {}", source_, error.what()), kHint);
  }
  bool complete() const { return seen_vocab_ && seen_merges_; }

 private:
  enum class State { kRest, kVocab, kMerges, kMergePair };

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(fmt::format("{}: {}", source_, fmt::format(format, std::forward<Args>(args)...)), kHint);
  }

  bool in_model() const { return stack_.size() == 2 && model_; }

  bool enter(State state, bool& seen, const char* name) {
    if (seen) fail("model.{} is there twice", name);
    seen = true;
    state_ = state;
    return true;
  }
  json* place(json&& child) {
    if (state_ == State::kVocab) fail("model.vocab: the id of {} is not an integer", snippet(piece_name()));
    if (state_ != State::kRest) fail("model.merges[{}] is not a string or a pair of strings", file_.merges.size());
    if (stack_.empty()) return &(file_.rest = std::move(child));
    if (stack_.back()->is_object()) return &((*stack_.back())[key_] = std::move(child));
    stack_.back()->push_back(std::move(child));
    return &stack_.back()->back();
  }
  bool value(json&& child) {
    place(std::move(child));
    return true;
  }
  bool open(json&& child) {
    if (stack_.size() >= kMaxDepth) fail("nested deeper than {} levels", kMaxDepth);
    if (stack_.size() == 1) model_ = key_ == "model";
    stack_.push_back(place(std::move(child)));
    return true;
  }
  bool close(State state) {
    if (state_ == state) {
      state_ = State::kRest;
    } else {
      stack_.pop_back();
    }
    return true;
  }

  bool vocab_piece(std::string_view spelling) {
    const std::size_t begin = file_.text.size();
    append(spelling, "model.vocab");
    file_.vocab.push_back({begin, file_.text.size(), -1});
    return true;
  }
  std::string_view piece_name() const {
    return file_.vocab.empty() ? "" : file_.bytes(file_.vocab.back().begin, file_.vocab.back().end);
  }
  bool vocab_id(number_integer_t id) {
    if (id < 0 || id > std::numeric_limits<std::int32_t>::max()) {
      fail("model.vocab: {} has an id below 0 or above 2^31 - 1", snippet(piece_name()));
    }
    file_.vocab.back().id = static_cast<std::int32_t>(id);
    return true;
  }
  bool merge_string(std::string_view spelling) {
    const std::size_t space = spelling.find(' ');
    if (space == std::string_view::npos || spelling.find(' ', space + 1) != std::string_view::npos) {
      fail("model.merges[{}] is {}, expected two pieces and one space", file_.merges.size(), snippet(spelling));
    }
    RawFile::RawMerge merge{file_.text.size(), 0, 0};
    append(spelling.substr(0, space), "model.merges");
    merge.middle = file_.text.size();
    append(spelling.substr(space + 1), "model.merges");
    merge.end = file_.text.size();
    file_.merges.push_back(merge);
    return true;
  }
  bool merge_half(std::string_view spelling) {
    append(spelling, "model.merges");
    RawFile::RawMerge& merge = file_.merges.back();
    (halves_ == 0 ? merge.middle : merge.end) = file_.text.size();
    ++halves_;
    return true;
  }
  void append(std::string_view spelling, const char* field) {
    if (spelling.empty()) fail("{}: a piece is empty", field);
    if (!alphabet_.append_bytes(spelling, file_.text)) {
      fail("{}: {} has a character that stands for no byte", field, snippet(spelling));
    }
  }

  RawFile& file_;
  std::string_view source_;
  ByteAlphabet alphabet_;
  State state_ = State::kRest;
  std::vector<json*> stack_;  // the open objects and arrays of `rest`
  std::string key_;
  bool model_ = false;  // the open member of the root is "model"
  bool seen_vocab_ = false;
  bool seen_merges_ = false;
  int halves_ = 0;  // of the open pair
};

/// The second step.
class Checker {
 public:
  Checker(const RawFile& raw, std::string_view source) : raw_(raw), source_(source) {}

  TokenizerFile run() {
    check_normalizer();
    check_pre_tokenizer();
    expect_type(field("decoder"), "decoder", "ByteLevel");
    check_model();
    collect_added();
    collect_pieces();
    collect_merges();
    return std::move(file_);
  }

 private:
  struct Added {
    std::int32_t id;
    std::string content;
  };

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(fmt::format("{}: {}", source_, fmt::format(format, std::forward<Args>(args)...)), kHint);
  }

  const json& field(const char* name) const {
    const auto found = raw_.rest.find(name);
    if (found == raw_.rest.end()) fail("field '{}' is missing", name);
    return *found;
  }
  static const json& member(const json& object, const char* name) {
    static const json kNull;
    const auto found = object.find(name);
    return found == object.end() ? kNull : *found;
  }
  void expect(const json& object, const char* where, const char* name, const json& expected) const {
    const json& found = member(object, name);
    if (found != expected) {
      fail("{}.{} is {}, expected {}", where, name, snippet(found.dump(-1, ' ', true)), expected.dump());
    }
  }
  void expect_type(const json& object, const char* where, const char* type) const {
    if (!object.is_object()) fail("{} is {}, expected an object of type {}", where, object.type_name(), type);
    expect(object, where, "type", type);
  }
  /// Absent, null, and each of `harmless` are the same to lily.
  void expect_off(const json& object, const char* where, const char* name, const json& harmless) const {
    if (!member(object, name).is_null()) expect(object, where, name, harmless);
  }

  void check_normalizer() const { expect_type(field("normalizer"), "normalizer", "NFC"); }

  void check_pre_tokenizer() const {
    const json& sequence = field("pre_tokenizer");
    expect_type(sequence, "pre_tokenizer", "Sequence");
    const json& steps = member(sequence, "pretokenizers");
    if (!steps.is_array() || steps.size() != 2) fail("pre_tokenizer.pretokenizers is not Split and ByteLevel");
    const json& split = steps[0];
    expect_type(split, "pre_tokenizer.pretokenizers[0]", "Split");
    expect(split, "pre_tokenizer.pretokenizers[0]", "behavior", "Isolated");
    expect_off(split, "pre_tokenizer.pretokenizers[0]", "invert", false);
    const json& pattern = member(split, "pattern");
    if (pattern != json::object({{"Regex", kSplitPattern}})) {
      fail("pre_tokenizer splits by {}, which lily does not implement; expected {}",
           snippet(pattern.dump(-1, ' ', true), 400), kSplitPattern);
    }
    const json& bytes = steps[1];
    expect_type(bytes, "pre_tokenizer.pretokenizers[1]", "ByteLevel");
    expect(bytes, "pre_tokenizer.pretokenizers[1]", "add_prefix_space", false);
    expect(bytes, "pre_tokenizer.pretokenizers[1]", "use_regex", false);
  }

  void check_model() {
    const json& model = field("model");
    expect_type(model, "model", "BPE");
    expect_off(model, "model", "dropout", 0.0);
    expect_off(model, "model", "unk_token", nullptr);
    expect_off(model, "model", "continuing_subword_prefix", "");
    expect_off(model, "model", "end_of_word_suffix", "");
    expect_off(model, "model", "byte_fallback", false);
    const json& ignore_merges = member(model, "ignore_merges");
    if (!ignore_merges.is_null() && !ignore_merges.is_boolean()) expect(model, "model", "ignore_merges", false);
    file_.ignore_merges = ignore_merges == true;
  }

  void collect_added() {
    const json& list = field("added_tokens");
    if (!list.is_array()) fail("added_tokens is {}, expected an array", list.type_name());
    std::unordered_set<std::string_view> spellings;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string where = fmt::format("added_tokens[{}]", i);
      const json& entry = list[i];
      if (!entry.is_object()) fail("{} is {}, expected an object", where, entry.type_name());
      const json& id = member(entry, "id");
      const json& content = member(entry, "content");
      if (!content.is_string()) fail("{}.content is {}, expected a string", where, content.type_name());
      const auto& spelling = content.get_ref<const std::string&>();
      if (spelling.empty() || spelling.size() > kMaxAddedBytes) {
        fail("{}.content has {} bytes, expected 1 to {}", where, spelling.size(), kMaxAddedBytes);
      }
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() > std::numeric_limits<std::int32_t>::max()) {
        fail("{}.id is {}, expected a number from 0 to 2^31 - 1", where, snippet(id.dump(-1, ' ', true)));
      }
      for (const char* name : {"single_word", "lstrip", "rstrip", "normalized"}) {
        expect_off(entry, where.c_str(), name, false);
      }
      if (!spellings.insert(spelling).second) fail("{}: {} is there twice", where, snippet(spelling));
      added_.push_back({id.get<std::int32_t>(), spelling});
    }
  }

  void collect_pieces() {
    std::vector<std::optional<std::string_view>> by_id(raw_.vocab.size() + added_.size());
    std::size_t bytes = 0;
    const auto put = [&](std::int32_t id, std::string_view piece) {
      // Ids without gaps: then size() is all that the sampler must know.
      if (static_cast<std::size_t>(id) >= by_id.size()) {
        fail("{} has id {}, but there are only {} tokens", snippet(piece), id, by_id.size());
      }
      if (by_id[id]) fail("id {} is both {} and {}", id, snippet(*by_id[id]), snippet(piece));
      by_id[id] = piece;
      bytes += piece.size();
    };
    ids_ = PieceIndex(raw_.vocab.size());
    for (const auto& piece : raw_.vocab) {
      const std::string_view text = raw_.bytes(piece.begin, piece.end);
      if (!ids_.insert(text, piece.id)) fail("model.vocab: {} is there twice", snippet(text));
      put(piece.id, text);
    }
    std::size_t shared = 0;  // added tokens that the vocabulary lists too
    std::vector<std::int32_t> added_ids;
    for (const Added& token : added_) {
      if (ids_.find(token.content) == token.id) {
        ++shared;
      } else {
        put(token.id, token.content);
      }
      added_ids.push_back(token.id);
    }
    by_id.resize(by_id.size() - shared);
    finish_pieces(by_id, bytes);
    for (const std::int32_t id : added_ids) {
      if (file_.added[id]) fail("added_tokens: id {} is there twice", id);
      file_.added[id] = true;
    }
  }

  void finish_pieces(const std::vector<std::optional<std::string_view>>& by_id, std::size_t bytes) {
    file_.pieces.reserve(by_id.size(), bytes);
    for (std::size_t id = 0; id < by_id.size(); ++id) {
      if (!by_id[id]) fail("id {} has no token, but there are tokens above it", id);
      file_.pieces.push_back(*by_id[id]);
    }
    file_.added.resize(by_id.size());
  }

  std::int32_t piece_id(std::size_t merge, std::string_view piece) const {
    const std::int32_t id = ids_.find(piece);
    if (id < 0) fail("model.merges[{}] names {}, which model.vocab lacks", merge, snippet(piece));
    if (file_.added[id]) fail("model.merges[{}] makes or takes the added token {}", merge, snippet(piece));
    return id;
  }

  void collect_merges() {
    file_.merges.reserve(raw_.merges.size());
    for (std::size_t i = 0; i < raw_.merges.size(); ++i) {
      const auto& merge = raw_.merges[i];
      file_.merges.push_back({piece_id(i, raw_.bytes(merge.begin, merge.middle)),
                              piece_id(i, raw_.bytes(merge.middle, merge.end)),
                              piece_id(i, raw_.bytes(merge.begin, merge.end))});
    }
  }

  const RawFile& raw_;
  std::string_view source_;
  std::vector<Added> added_;
  PieceIndex ids_;  // of the vocabulary
  TokenizerFile file_;
};

}  // namespace

TokenizerFile parse_tokenizer_file(std::string_view text, std::string_view source) {
  RawFile raw;
  raw.text.reserve(text.size() / 2);
  Reader reader(raw, source);
  json::sax_parse(text, &reader);
  if (!raw.rest.is_object()) throw Error(fmt::format("{}: not a JSON object", source), kHint);
  if (!reader.complete()) throw Error(fmt::format("{}: model.vocab or model.merges is missing", source), kHint);
  return Checker(raw, source).run();
}

}  // namespace lily
