// A copy of the demo checkpoint of which single bytes can be changed.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace lily {

class DemoCopy {
 public:
  /// `name` sets it apart from other tests' copies.
  explicit DemoCopy(const std::string& name)
      : directory_(std::filesystem::temp_directory_path() / (name + "_" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(directory_);
    std::filesystem::copy(std::filesystem::path(LILY_SOURCE_DIR) / "models" / "demo", directory_);
    std::ifstream file(weights(), std::ios::binary);
    std::uint64_t size = 0;  // a safetensors file begins with its header's size, of 8 bytes, low ones first
    file.read(reinterpret_cast<char*>(&size), sizeof(size));
    std::string header(size, ' ');
    file.read(header.data(), static_cast<std::streamsize>(size));
    header_ = nlohmann::json::parse(header);
    data_ = sizeof(size) + size;
  }
  DemoCopy(const DemoCopy&) = delete;
  DemoCopy& operator=(const DemoCopy&) = delete;
  ~DemoCopy() { std::filesystem::remove_all(directory_); }

  const std::filesystem::path& directory() const { return directory_; }
  const nlohmann::json& header() const { return header_; }
  /// Bytes of a tensor.
  std::uint64_t size(const std::string& tensor) const { return offset(tensor, 1) - offset(tensor, 0); }
  /// Changes the lowest bit of a tensor's byte; done again, it is as before.
  void flip(const std::string& tensor, std::uint64_t byte) const {
    ASSERT_LT(byte, size(tensor));
    const auto place = static_cast<std::streamoff>(data_ + offset(tensor, 0) + byte);
    std::fstream file(weights(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(place);
    const int value = file.get();
    file.seekp(place);
    file.put(static_cast<char>(value ^ 1));
    file.close();
    ASSERT_TRUE(file);
  }

 private:
  std::filesystem::path weights() const { return directory_ / "model.safetensors"; }
  std::uint64_t offset(const std::string& tensor, std::size_t end) const {
    return header_.at(tensor).at("data_offsets").at(end).get<std::uint64_t>();
  }

  std::filesystem::path directory_;
  nlohmann::json header_;
  std::uint64_t data_ = 0;
};

}  // namespace lily
