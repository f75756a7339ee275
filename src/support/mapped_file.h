// A regular file mapped read-only. The mapping lives as long as the object; an empty file maps to an empty span.
// A file that another process truncates while it is mapped ends this process with SIGBUS: that is not guarded against.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace lily {

class MappedFile {
 public:
  /// Throws Error when the file is missing, not readable or not a regular file.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  void unmap() noexcept;

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Says that these mapped bytes will be read soon, without waiting for them: only their pages, however few.
void prefetch_pages(std::span<const std::byte> mapped);

/// Says that these mapped bytes will not be read again soon, so that a pass over a large file does not fill this
/// process's memory. They stay readable.
void release_pages(std::span<const std::byte> mapped);

}  // namespace lily
