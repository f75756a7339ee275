#include "server/body_decoder.h"

#include <httplib.h>  // says what it was built with, and includes the headers of that

#include <array>

#include "server/ascii_text.h"
#include "support/error.h"

namespace lily {
namespace {

using Result = BodyDecoder::Result;

constexpr std::size_t kPiece = 16384;

constexpr std::array<std::string_view, 1
#ifdef CPPHTTPLIB_ZLIB_SUPPORT
                                           + 2
#endif
#ifdef CPPHTTPLIB_BROTLI_SUPPORT
                                           + 1
#endif
                     >
    kEncodings = {
        "identity",
#ifdef CPPHTTPLIB_ZLIB_SUPPORT
        "gzip",
        "deflate",
#endif
#ifdef CPPHTTPLIB_BROTLI_SUPPORT
        "br",
#endif
};

bool append(std::string& body, std::string_view more, std::size_t most) {
  if (more.size() > most - body.size()) return false;
  body += more;
  return true;
}

class Identity final : public BodyDecoder {
 public:
  Result push(std::string_view bytes, std::string& body, std::size_t most) override {
    return append(body, bytes, most) ? Result::kWell : Result::kTooLarge;
  }
  bool whole() const override { return true; }  // by its length, which the connection knows
};

#ifdef CPPHTTPLIB_ZLIB_SUPPORT
/// gzip, of one member or several, and zlib's format, which HTTP calls deflate.
class Inflate final : public BodyDecoder {
 public:
  Inflate() {
    constexpr int kLargestWindowOfEither = 15 + 32;
    if (::inflateInit2(&stream_, kLargestWindowOfEither) != Z_OK) throw_error("zlib cannot start: out of memory");
  }
  Inflate(const Inflate&) = delete;
  Inflate& operator=(const Inflate&) = delete;
  ~Inflate() override { ::inflateEnd(&stream_); }

  Result push(std::string_view bytes, std::string& body, std::size_t most) override {
    std::array<char, kPiece> some;
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream_.avail_in = static_cast<uInt>(bytes.size());
    for (bool full = false; stream_.avail_in > 0 || full;) {
      if (whole_ && ::inflateReset(&stream_) != Z_OK) return Result::kBroken;
      stream_.next_out = reinterpret_cast<Bytef*>(some.data());
      stream_.avail_out = kPiece;
      const int result = ::inflate(&stream_, Z_NO_FLUSH);
      if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) return Result::kBroken;
      whole_ = result == Z_STREAM_END;
      if (!append(body, {some.data(), kPiece - stream_.avail_out}, most)) return Result::kTooLarge;
      full = stream_.avail_out == 0 && !whole_;
    }
    return Result::kWell;
  }
  bool whole() const override { return whole_; }

 private:
  z_stream stream_{};
  bool whole_ = false;
};
#endif

#ifdef CPPHTTPLIB_BROTLI_SUPPORT
class Brotli final : public BodyDecoder {
 public:
  Brotli() : state_(::BrotliDecoderCreateInstance(nullptr, nullptr, nullptr)) {
    if (!state_) throw_error("brotli cannot start: out of memory");
  }

  Result push(std::string_view bytes, std::string& body, std::size_t most) override {
    std::array<std::uint8_t, kPiece> some;
    std::size_t left = bytes.size();
    auto* next = reinterpret_cast<const std::uint8_t*>(bytes.data());
    for (auto result = BROTLI_DECODER_RESULT_NEEDS_MORE_OUTPUT; result == BROTLI_DECODER_RESULT_NEEDS_MORE_OUTPUT;) {
      std::size_t room = kPiece;
      std::uint8_t* out = some.data();
      result = ::BrotliDecoderDecompressStream(state_.get(), &left, &next, &room, &out, nullptr);
      if (result == BROTLI_DECODER_RESULT_ERROR) return Result::kBroken;
      if (!append(body, {reinterpret_cast<const char*>(some.data()), kPiece - room}, most)) return Result::kTooLarge;
    }
    return left == 0 ? Result::kWell : Result::kBroken;
  }
  bool whole() const override { return ::BrotliDecoderIsFinished(state_.get()) != 0; }

 private:
  struct Destroy {
    void operator()(BrotliDecoderState* state) const { ::BrotliDecoderDestroyInstance(state); }
  };
  std::unique_ptr<BrotliDecoderState, Destroy> state_;
};
#endif

}  // namespace

std::span<const std::string_view> body_encodings() {
  return kEncodings;
}

std::unique_ptr<BodyDecoder> make_body_decoder(std::string_view encoding) {
  const std::string name = ascii_lower(encoding);
  if (name.empty() || name == "identity") return std::make_unique<Identity>();
#ifdef CPPHTTPLIB_ZLIB_SUPPORT
  if (name == "gzip" || name == "x-gzip" || name == "deflate") return std::make_unique<Inflate>();
#endif
#ifdef CPPHTTPLIB_BROTLI_SUPPORT
  if (name == "br") return std::make_unique<Brotli>();
#endif
  return nullptr;
}

}  // namespace lily
