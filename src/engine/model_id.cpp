#include "engine/model_id.h"

#include <xxhash.h>

#include <memory>

#include "support/mapped_file.h"

namespace lily {
namespace {

constexpr std::size_t kPieces = 8;
constexpr std::size_t kPieceBytes = 64;

class Hash {
 public:
  Hash() : state_(XXH3_createState(), &XXH3_freeState) { XXH3_64bits_reset(state_.get()); }
  template <typename T>
  void add(std::span<const T> values) {
    XXH3_64bits_update(state_.get(), values.data(), values.size_bytes());
  }
  std::uint64_t result() const { return XXH3_64bits_digest(state_.get()); }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

}  // namespace

std::vector<std::span<const std::byte>> pieces_of(std::span<const std::byte> bytes) {
  if (bytes.size() <= kPieces * kPieceBytes) return {bytes};
  std::vector<std::span<const std::byte>> pieces;
  const std::size_t last = bytes.size() - kPieceBytes;
  for (std::size_t i = 0; i < kPieces; ++i) {
    pieces.push_back(bytes.subspan(last * i / (kPieces - 1), kPieceBytes));
  }
  return pieces;
}

std::uint64_t model_id(const Checkpoint& checkpoint) {
  for (const TensorView& tensor : checkpoint.tensors()) {
    for (const auto piece : pieces_of(tensor.bytes)) prefetch_pages(piece);
  }
  Hash hash;
  const MappedFile config(checkpoint.directory() / "config.json");
  hash.add(config.bytes());
  for (const TensorView& tensor : checkpoint.tensors()) {
    hash.add(std::span<const char>(tensor.name));
    hash.add(std::span<const DType>(&tensor.dtype, 1));
    hash.add(std::span<const std::int64_t>(tensor.shape));
    for (const auto piece : pieces_of(tensor.bytes)) hash.add(piece);
  }
  return hash.result();
}

}  // namespace lily
