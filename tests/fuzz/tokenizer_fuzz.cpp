// Two kinds of input. One that begins with '{' is a tokenizer.json: it is read or refused with an Error, and one that
// is read encodes. Any other is a vocabulary and a text: a number of merges, for each two numbers of pieces, then the
// text; tokens must be those of the definition, and decoding must give the text back.
#include <array>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "support/error.h"
#include "text/bpe.h"
#include "text/naive_bpe.h"
#include "text/small_tokenizer.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace {

using lily::Merge;
using lily::Tokenizer;
using Ids = std::vector<std::int32_t>;

void check_text(const Tokenizer& tokenizer, std::string_view text) {
  const Ids ids = tokenizer.encode_text(text);
  for (const std::int32_t id : ids) LILY_CHECK(id >= 0 && id < tokenizer.size() && !tokenizer.is_added(id));
  const std::string decoded = tokenizer.decode(ids);
  LILY_CHECK(decoded == lily::normalize_nfc(lily::replace_invalid_utf8(text)));
  for (const Ids& some : {ids, tokenizer.encode_with_control(text)}) {
    lily::StreamDecoder decoder(tokenizer);
    std::string streamed;
    for (const std::int32_t id : some) streamed += decoder.push(id);
    LILY_CHECK(streamed + decoder.finish() == tokenizer.decode(some));
  }
}

void check_file(std::string_view json) {
  try {
    const Tokenizer tokenizer = Tokenizer::parse(json, "fuzz.json");
    for (const std::string_view text :
         {"Hello, world! it's <a> <a>b\n\n", "caf\xC3\xA9 e\xCC\x81 \xE2\x82", "aaaaaaaabbbbb"}) {
      check_text(tokenizer, text);
    }
  } catch (const lily::Error& error) {
    LILY_CHECK(std::string_view(error.what()).starts_with("fuzz.json: "));
  }
}

/// Takes the merges from the front of `data`; new pieces get the ids from 256 on.
std::vector<Merge> take_merges(std::string_view& data) {
  const auto take = [&]() -> std::size_t {
    if (data.empty()) return 0;
    const auto byte = static_cast<unsigned char>(data.front());
    data.remove_prefix(1);
    return byte;
  };
  std::vector<std::string> pieces = {"a", "b", " ", "'", "s", "\n", "\xC3", "\xA9"};
  std::map<std::string, std::int32_t> ids;
  for (const std::string& piece : pieces) ids[piece] = static_cast<unsigned char>(piece.front());
  std::vector<Merge> merges;
  std::int32_t next = 256;
  for (std::size_t left = take() % 32; left > 0; --left) {
    const std::string first = pieces[take() % pieces.size()];
    const std::string second = pieces[take() % pieces.size()];
    if (first.size() + second.size() > 64) continue;
    const auto [found, fresh] = ids.emplace(first + second, next);
    if (fresh) pieces.push_back(first + second);
    next += fresh ? 1 : 0;
    merges.push_back({ids[first], ids[second], found->second});
  }
  return merges;
}

void check_merges(std::string_view data) {
  const std::vector<Merge> merges = take_merges(data);
  std::array<std::int32_t, 256> bytes;
  std::iota(bytes.begin(), bytes.end(), 0);
  const std::string_view word = data.substr(0, 256);
  Ids ids;
  lily::Bpe(bytes, merges).encode(word, ids);
  LILY_CHECK(ids == lily::naive_bpe(merges, word));

  static const Tokenizer tokenizer =
      lily::tokenizer_of(lily::small_tokenizer_json({{"a", "b"}, {"\u0120", "a"}, {"ab", "ab"}}));
  check_text(tokenizer, data);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.starts_with('{')) {
    check_file(input);
  } else {
    check_merges(input);
  }
  return 0;
}
