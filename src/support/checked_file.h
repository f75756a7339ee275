// Files that are whole or refused: written beside their place, closed by a checksum and renamed over it; read only
// after the checksum was found right. A crash leaves the old file or the new one, never a part.
//
//   magic      8 bytes
//   content    as the caller writes it
//   XXH3-64    of magic and content, little-endian
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lily {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using FileHandle = std::unique_ptr<std::FILE, CloseFile>;

class CheckedWriter {
 public:
  /// Throws Error where the file cannot be created or written (every member does).
  CheckedWriter(const std::filesystem::path& path, std::string_view magic);
  CheckedWriter(const CheckedWriter&) = delete;
  CheckedWriter& operator=(const CheckedWriter&) = delete;
  /// Without finish() nothing is left behind.
  ~CheckedWriter();

  void write(std::span<const std::byte> bytes);
  template <typename T>
  void write_values(std::span<const T> values) {
    write(std::as_bytes(values));
  }
  void write_number(std::uint64_t value) { write_values(std::span<const std::uint64_t>(&value, 1)); }
  void write_text(std::string_view text);  // its length, then the bytes

  /// Makes it durable and gives it its name.
  void finish();

 private:
  friend class CheckedReader;
  struct Hash;

  void put(std::span<const std::byte> bytes);
  [[noreturn]] void failed(const char* what) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  FileHandle file_;
  std::unique_ptr<Hash> hash_;
  bool finished_ = false;
};

class CheckedReader {
 public:
  /// Reads the whole file once for its magic and checksum. Throws Error when it cannot be opened or is not whole.
  CheckedReader(const std::filesystem::path& path, std::string_view magic);

  /// Bytes of content that were not read yet.
  std::uint64_t left() const { return left_; }
  void read(std::span<std::byte> out);
  template <typename T>
  void read_values(std::span<T> out) {
    read(std::as_writable_bytes(out));
  }
  std::uint64_t read_number();
  std::string read_text(std::uint64_t longest);

  /// The file is not what its kind must be.
  [[noreturn]] void damaged(const std::string& why) const;
  /// The file is whole, but not fit for what it is wanted for.
  [[noreturn]] void refused(const std::string& why) const;

 private:
  void check(std::string_view magic);

  std::filesystem::path path_;
  FileHandle file_;
  std::uint64_t left_ = 0;
};

}  // namespace lily
