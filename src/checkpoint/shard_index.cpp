#include "checkpoint/shard_index.h"

#include <nlohmann/json.hpp>

#include "support/error.h"
#include "support/json.h"

namespace lily {
namespace {

constexpr std::string_view kExtension = ".safetensors";

bool is_plain_file_name(std::string_view name) {
  return name.size() > kExtension.size() && name.size() <= 255 && name.ends_with(kExtension) &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

}  // namespace

std::map<std::string, std::string> parse_shard_index(std::string_view text, const std::string& where) {
  const nlohmann::json document = parse_json(text, where);
  const auto map = document.is_object() ? document.find("weight_map") : document.end();
  if (map == document.end() || !map->is_object()) throw_error("{}: has no object 'weight_map'", where);
  if (map->empty()) throw_error("{}: 'weight_map' names no tensor", where);

  std::map<std::string, std::string> files;
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string()) throw_error("{}: tensor '{}' has no file name", where, printable(name));
    const auto& file_name = file.get_ref<const std::string&>();
    if (!is_plain_file_name(file_name)) {
      throw_error("{}: tensor '{}' is said to be in '{}', expected a .safetensors file of the same directory", where,
                  printable(name), printable(file_name));
    }
    files.emplace(name, file_name);
  }
  return files;
}

}  // namespace lily
