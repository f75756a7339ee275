#include "support/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

#include "support/error.h"

namespace lily {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int value) : value_(value) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int get() const { return value_; }

 private:
  int value_;
};

[[noreturn]] void fail(const std::filesystem::path& path, int error) {
  throw_error("{}: cannot be read: {}", path.string(), std::generic_category().message(error));
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  // Non-blocking, so that a named pipe is refused below instead of waiting for a writer.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) fail(path, errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail(path, errno);
  if (!S_ISREG(status.st_mode)) {
    throw_error("{}: is {}, expected a regular file", path.string(),
                S_ISDIR(status.st_mode) ? "a directory" : "a device or pipe");
  }
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) fail(path, errno);
  data_ = static_cast<const std::byte*>(data);
#if defined(MADV_HUGEPAGE)
  // A hint: what is then read from disk comes in pages of 2 MB, which stay in the page cache for later processes too.
  // Small pages cost a third of the read bandwidth.
  ::madvise(data, size_, MADV_HUGEPAGE);
#endif
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    unmap();
    path_ = std::move(other.path_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

MappedFile::~MappedFile() {
  unmap();
}

void MappedFile::unmap() noexcept {
  // munmap takes a mutable pointer, though it changes no bytes.
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void prefetch_pages(std::span<const std::byte> mapped) {
  if (mapped.empty()) return;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t before = reinterpret_cast<std::uintptr_t>(mapped.data()) % page;
  // As below: advice, and no bytes change.
  ::madvise(const_cast<std::byte*>(mapped.data() - before), before + mapped.size(), MADV_WILLNEED);
}

void release_pages(std::span<const std::byte> mapped) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t skipped = (page - reinterpret_cast<std::uintptr_t>(mapped.data()) % page) % page;
  if (mapped.size() < skipped + page) return;
  const std::span<const std::byte> pages = mapped.subspan(skipped, (mapped.size() - skipped) / page * page);
  // Advice: failing changes nothing. The call takes a mutable pointer, though it changes no bytes.
  ::madvise(const_cast<std::byte*>(pages.data()), pages.size(), MADV_DONTNEED);
}

}  // namespace lily
