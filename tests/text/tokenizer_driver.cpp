// A tokenizer for tokenizer_oracle.py: tokenizer_driver DIRECTORY. Each line of standard input is a verb and an
// argument, each line of output the answer:
//
//   text HEX       ids of ordinary text, in decimal
//   control HEX    ids of text in which control tokens count
//   decode IDS     the text in HEX
//   stream IDS     the same, through StreamDecoder
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "support/error.h"
#include "text/tokenizer.h"

namespace {

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::string to_hex(const std::string& bytes) {
  std::string hex;
  for (const char byte : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return hex;
}

std::string stream(const lily::Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  lily::StreamDecoder decoder(tokenizer);
  std::string text;
  for (const std::int32_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

std::string answer(const lily::Tokenizer& tokenizer, const std::string& verb, const std::string& argument) {
  if (verb == "text") return fmt::format("{}", fmt::join(tokenizer.encode_text(from_hex(argument)), " "));
  if (verb == "control") return fmt::format("{}", fmt::join(tokenizer.encode_with_control(from_hex(argument)), " "));
  std::istringstream numbers(argument);
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 0; numbers >> id;) ids.push_back(id);
  return to_hex(verb == "stream" ? stream(tokenizer, ids) : tokenizer.decode(ids));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    const auto tokenizer = lily::Tokenizer::open(argv[1]);
    for (std::string line; std::getline(std::cin, line);) {
      const std::size_t space = line.find(' ');
      std::cout << answer(tokenizer, line.substr(0, space), line.substr(space + 1)) << '\n';
    }
  } catch (const lily::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
