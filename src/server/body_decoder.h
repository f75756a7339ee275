// Undoes the Content-Encoding of a request's body, piece by piece, and knows whether its end has come: the HTTP library
// takes a body that is cut short for a whole one. Which encodings there are depends on what the library was built with.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lily {

class BodyDecoder {
 public:
  enum class Result { kWell, kBroken, kTooLarge };

  virtual ~BodyDecoder() = default;
  /// Appends what `bytes` amount to, until `body` would have more than `most` bytes. After anything but kWell, no more
  /// may come.
  virtual Result push(std::string_view bytes, std::string& body, std::size_t most) = 0;
  /// Whether nothing is missing.
  virtual bool whole() const = 0;
};

/// Names of encodings, for error messages.
std::span<const std::string_view> body_encodings();

/// `encoding`: as in the Content-Encoding, upper or lower case; empty: none. Nothing for one that is not known.
std::unique_ptr<BodyDecoder> make_body_decoder(std::string_view encoding);

}  // namespace lily
