// The safetensors format:
//
//   u64 little-endian: header length | header (JSON, may be padded with spaces) | data
//   header: {"__metadata__": {string: string}, NAME: {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, ...}
//
// Offsets count from the start of the data. The tensors cover the data without overlap and without holes. The data's
// start has no promised alignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/tensor_view.h"

namespace lily {

/// The tensors of one file's bytes, as views into them, ordered by offset. `where` names the file in errors. Throws
/// Error unless header, dtypes, shapes, offsets and the file's length all agree.
std::vector<TensorView> parse_safetensors(std::span<const std::byte> file, const std::string& where);

/// "BF16", "U32", ...; "another type" for kOther.
std::string_view dtype_name(DType dtype);

/// "[2, 3]"
std::string shape_text(std::span<const std::int64_t> shape);

}  // namespace lily
