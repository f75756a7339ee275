// Reading small JSON files that may be hostile: bounded in size and in nesting, errors that name the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace lily {

/// The parsed file. Throws Error when it is missing, larger than `limit`, nested deeper than 64, not JSON, or when an
/// object names a key twice.
nlohmann::json read_json_file(const std::filesystem::path& file, std::size_t limit = std::size_t{16} << 20);

/// The same for text in memory; `where` names it in errors.
nlohmann::json parse_json(std::string_view text, const std::string& where);

/// A name from a file, safe to print: control bytes become '?', long names are cut.
std::string printable(std::string_view name);

}  // namespace lily
