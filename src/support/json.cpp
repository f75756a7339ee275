#include "support/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "support/error.h"
#include "support/mapped_file.h"

namespace lily {
namespace {

constexpr int kMaxDepth = 64;

}  // namespace

std::string printable(std::string_view name) {
  constexpr std::size_t kLongest = 120;
  std::string out;
  for (const char c : name.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte >= 0x7f ? '?' : c;
  }
  if (name.size() > kLongest) out += "...";
  return out;
}

nlohmann::json parse_json(std::string_view text, const std::string& where) {
  using nlohmann::json;
  if (text.find('\0') != std::string_view::npos) {  // the parser would take it for the end
    throw_error("{}: not valid JSON: it holds a NUL byte", where);
  }
  std::vector<std::set<std::string>> keys;  // of the open objects, to find a key given twice
  const auto check = [&](int depth, json::parse_event_t event, json& value) {
    if (depth > kMaxDepth) throw_error("{}: nested deeper than {} levels", where, kMaxDepth);
    if (event == json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == json::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!keys.back().insert(key).second) throw_error("{}: key '{}' is given twice", where, printable(key));
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), check);
  } catch (const json::parse_error& error) {
    throw Error(
        fmt::format("{}: not valid JSON at byte {} of {}", where, std::min(error.byte, text.size()), text.size()),
        "the file may be damaged or cut short: download it again");
  } catch (const json::exception&) {  // a number too large for any type
    throw_error("{}: not valid JSON", where);
  }
}

nlohmann::json read_json_file(const std::filesystem::path& file, std::size_t limit) {
  const MappedFile mapped(file);
  const std::span<const std::byte> bytes = mapped.bytes();
  if (bytes.size() > limit) {
    throw_error("{}: has {} bytes, expected at most {}", file.string(), bytes.size(), limit);
  }
  return parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file.string());
}

}  // namespace lily
