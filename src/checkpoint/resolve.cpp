// --model: a directory, an id in the local Hugging Face hub cache, or "demo".
//
//   <hub cache>/models--<owner>--<name>/refs/main                 holds a commit
//   <hub cache>/models--<owner>--<name>/snapshots/<commit>/...    the files
//
// It looks only at what is on this machine; it downloads nothing.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <system_error>

#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

#include "checkpoint/checkpoint.h"
#include "support/error.h"
#include "support/json.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

bool is_a_directory(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::optional<fs::path> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return fs::path(value);
}

/// The same order as huggingface_hub.
fs::path hub_cache() {
  if (const auto cache = variable("HF_HUB_CACHE")) return *cache;
  if (const auto cache = variable("HUGGINGFACE_HUB_CACHE")) return *cache;
  if (const auto home = variable("HF_HOME")) return *home / "hub";
  if (const auto cache = variable("XDG_CACHE_HOME")) return *cache / "huggingface" / "hub";
  return variable("HOME").value_or("/") / ".cache" / "huggingface" / "hub";
}

fs::path executable() {
#ifdef __APPLE__
  std::string path(4096, '\0');
  auto size = static_cast<std::uint32_t>(path.size());
  if (_NSGetExecutablePath(path.data(), &size) != 0) return {};
  std::error_code ignored;
  return fs::canonical(path.c_str(), ignored);
#else
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored);
#endif
}

fs::path demo_directory() {
  fs::path source = LILY_DEMO_DIR;
  if (is_a_directory(source)) return source;
  fs::path installed = executable().parent_path().parent_path() / "share" / "lily" / "demo";
  if (is_a_directory(installed)) return installed;
  throw_error("the demo model is neither in {} nor in {}", source.string(), installed.string());
}

/// "owner/name" of letters, digits, '-', '_' and '.'; no part may be "." or "..".
bool is_hub_id(const std::string& id) {
  const std::size_t slash = id.find('/');
  if (slash == std::string::npos || id.find('/', slash + 1) != std::string::npos) return false;
  const std::string owner = id.substr(0, slash);
  const std::string name = id.substr(slash + 1);
  const auto allowed = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; };
  return !owner.empty() && !name.empty() && owner.front() != '.' && name.front() != '.' &&
         std::all_of(owner.begin(), owner.end(), allowed) && std::all_of(name.begin(), name.end(), allowed);
}

fs::path snapshot_of(const std::string& id) {
  const std::size_t slash = id.find('/');
  const fs::path root = hub_cache() / ("models--" + id.substr(0, slash) + "--" + id.substr(slash + 1));
  if (!is_a_directory(root)) {
    throw Error(fmt::format("model '{}': no such directory, and not in the hub cache {}", id, hub_cache().string()),
                fmt::format("fetch it with Hugging Face's own program: hf download {}", id));
  }
  std::string commit;
  std::ifstream(root / "refs" / "main") >> commit;
  const bool plain = !commit.empty() &&
                     std::all_of(commit.begin(), commit.end(), [](unsigned char c) { return std::isalnum(c) != 0; });
  if (plain && is_a_directory(root / "snapshots" / commit)) return root / "snapshots" / commit;
  throw Error(
      fmt::format("model '{}': {} has no snapshot of 'main'", id, root.string()),
      fmt::format("the download may be incomplete; fetch it with Hugging Face's own program: hf download {}", id));
}

}  // namespace

fs::path resolve_model(const std::string& directory_or_id) {
  if (directory_or_id == "demo") return demo_directory();
  std::error_code ignored;
  if (fs::exists(directory_or_id, ignored)) return directory_or_id;
  if (is_hub_id(directory_or_id)) return snapshot_of(directory_or_id);
  throw Error(fmt::format("model '{}': no such directory", printable(directory_or_id)),
              "give a directory, a Hugging Face id (owner/name) that is in the hub cache, or demo");
}

}  // namespace lily
