// lily tokenize: text into ids and pieces, and back.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "commands.h"
#include "standard_io.h"
#include "support/error.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace lily {
namespace {

struct TokenizeOptions {
  std::string model = "demo";
  std::vector<std::string> words;
  bool decode = false;
  bool control = false;
  bool json = false;
};

std::string input(const TokenizeOptions& options) {
  if (options.words.empty()) return read_standard_input();
  return fmt::format("{}", fmt::join(options.words, " "));
}

/// Numbers between spaces, commas or brackets: what `lily tokenize` prints, in either form.
std::vector<std::int32_t> parse_ids(std::string_view text, std::int32_t limit) {
  constexpr std::string_view kBetween = " \t\r\n,[]";
  std::vector<std::int32_t> ids;
  for (std::size_t at = text.find_first_not_of(kBetween); at != std::string_view::npos;
       at = text.find_first_not_of(kBetween, at)) {
    const std::size_t end = std::min(text.find_first_of(kBetween, at), text.size());
    std::int32_t id = -1;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, id);
    if (error != std::errc() || stop != text.data() + end || id < 0 || id >= limit) {
      throw Error(fmt::format("'{}' is not a token id, expected 0 to {}", text.substr(at, end - at), limit - 1),
                  "--decode takes ids, e.g. `lily tokenize --decode 33 7`");
    }
    ids.push_back(id);
    at = end;
  }
  return ids;
}

/// A piece on one line: bytes that are no printable characters are escaped.
std::string quoted(std::string_view bytes) {
  std::string out = "\"";
  for (std::size_t at = 0; at < bytes.size();) {
    const Utf8Char c = decode_utf8(bytes, at);
    const bool control = c.code_point < 0x20 || (c.code_point >= 0x7F && c.code_point < 0xA0);
    if (c.code_point == '\n') {
      out += "\\n";
    } else if (c.state != Utf8State::kValid || control) {
      for (std::size_t i = at; i < at + c.length; ++i) {
        out += fmt::format("\\x{:02X}", static_cast<unsigned char>(bytes[i]));
      }
    } else {
      if (c.code_point == '"' || c.code_point == '\\') out += '\\';
      out += bytes.substr(at, c.length);
    }
    at += c.length;
  }
  return out + "\"";
}

void print_tokens(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids, bool json) {
  if (!json) {
    for (const std::int32_t id : ids) fmt::print("{:>6}  {}\n", id, quoted(tokenizer.bytes(id)));
    return;
  }
  std::vector<std::string> pieces;
  pieces.reserve(ids.size());
  for (const std::int32_t id : ids) pieces.push_back(replace_invalid_utf8(tokenizer.bytes(id)));
  fmt::print("{}\n", nlohmann::json{{"ids", ids}, {"pieces", pieces}}.dump());
}

void print_text(const std::string& text, const std::vector<std::int32_t>& ids, bool json) {
  if (json) {
    fmt::print("{}\n", nlohmann::json{{"ids", ids}, {"text", text}}.dump());
    return;
  }
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (isatty(STDOUT_FILENO) != 0) std::fputc('\n', stdout);
}

void run(const TokenizeOptions& options) {
  const Tokenizer tokenizer = Tokenizer::open(resolve_model(options.model));
  const std::string text = input(options);
  if (options.decode) {
    const auto ids = parse_ids(text, tokenizer.size());
    print_text(tokenizer.decode(ids), ids, options.json);
    return;
  }
  print_tokens(tokenizer, options.control ? tokenizer.encode_with_control(text) : tokenizer.encode_text(text),
               options.json);
}

}  // namespace

void add_tokenize(CLI::App& app) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* command = app.add_subcommand("tokenize", "the tokens of a text, or the text of tokens");
  command->add_option("TEXT", options->words, "the text, or with --decode the ids; default: standard input");
  command->add_option("-m,--model", options->model, "directory, Hugging Face id in the local cache, or demo")
      ->capture_default_str();
  auto* decode = command->add_flag("-d,--decode", options->decode, "ids in, text out");
  command->add_flag("--control", options->control, "spellings of control tokens, such as <|im_end|>, become them")
      ->excludes(decode);
  command->add_flag("--json", options->json, "print one JSON object");
  command->callback([options] { run(*options); });
}

}  // namespace lily
