// Files and checkpoints for tests: made, damaged, removed.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "checkpoint/synthetic.h"
#include "support/error.h"

namespace lily::test {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lily_test_XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary directory");
    path_ = pattern;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline void write_bytes(const std::filesystem::path& file, std::string_view bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
}

inline std::string read_bytes(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A safetensors file's bytes from its parts; `padding` spaces after the header shift the data.
inline std::string safetensors(const std::string& header, const std::string& data, std::size_t padding = 0) {
  std::string bytes;
  const std::uint64_t length = header.size() + padding;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>((length >> (8 * i)) & 0xff);
  return bytes + header + std::string(padding, ' ') + data;
}

/// The header and the data of a file.
inline std::pair<nlohmann::json, std::string> split_safetensors(const std::string& bytes) {
  std::uint64_t length = 0;
  for (int i = 0; i < 8; ++i) length |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return {nlohmann::json::parse(bytes.substr(8, length)), bytes.substr(8 + length)};
}

/// The error's text contains every part.
inline void expect_error(const std::function<void()>& action, std::initializer_list<std::string_view> parts) {
  try {
    action();
  } catch (const Error& error) {
    const std::string text = std::string(error.what()) + "\n" + error.hint();
    for (const std::string_view part : parts) {
      EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
    }
    return;
  }
  ADD_FAILURE() << "no error; expected one with '" << *parts.begin() << "'";
}

/// A model of 4 layers and about 100 KB.
inline ModelConfig tiny_config() {
  ModelConfig c = demo_size();
  c.hidden_size = 64;
  c.num_hidden_layers = 4;
  c.vocab_size = 64;
  c.num_attention_heads = 2;
  c.head_dim = 32;
  c.rotary_dim = 8;
  c.linear_num_key_heads = 1;
  c.linear_num_value_heads = 2;
  c.linear_key_head_dim = 32;
  c.linear_value_head_dim = 32;
  c.num_experts = 4;
  c.num_experts_per_tok = 2;
  return c;
}

/// Writes the tiny model to `directory`, without a tokenizer.
inline void write_tiny(const std::filesystem::path& directory, std::uint64_t shard_bytes = std::uint64_t{1} << 30) {
  SyntheticOptions options;
  options.config = tiny_config();
  options.seed = 7;
  options.shard_bytes = shard_bytes;
  write_synthetic(directory, options);
}

}  // namespace lily::test
