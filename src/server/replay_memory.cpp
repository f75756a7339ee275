#include "server/replay_memory.h"

#include <xxhash.h>

#include <nlohmann/json.hpp>

#include "server/json_shape.h"

namespace lily {
namespace {

/// To JavaScript 1, 1.0 and 1e0 are one number, and so is what 53 bits do not tell apart.
void make_numbers_alike(nlohmann::json& value) {
  if (value.is_number()) {
    const auto number = value.get<double>();
    value = number == 0 ? 0.0 : number;  // -0 comes back as 0
  }
  if (!value.is_structured()) return;
  for (nlohmann::json& member : value) make_numbers_alike(member);
}

/// Arguments without what re-serialising changes: order of keys, white space, spelling of numbers.
std::string canonical_arguments(const std::string& arguments) {
  if (!is_modest_json(arguments)) return arguments;
  auto parsed = nlohmann::json::parse(arguments, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_discarded()) make_numbers_alike(parsed);
  return parsed.is_discarded() ? arguments : parsed.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

/// The visible conversation as one running hash; reasoning is not part of it.
class ConversationHash {
 public:
  void add(const ChatMessage& message) {
    add(std::to_string(static_cast<int>(message.role)));
    const std::string text = message.text();
    add(trimmed(text));
    for (const ToolCall& call : message.tool_calls) {
      add(call.name);
      add(canonical_arguments(call.arguments));
    }
  }
  std::uint64_t value() const { return value_; }

 private:
  void add(std::string_view text) { value_ = XXH3_64bits_withSeed(text.data(), text.size(), value_ + text.size() + 1); }

  std::uint64_t value_ = 0;
};

std::size_t size_of(const Pieces& pieces) {
  std::size_t bytes = 0;
  for (const Piece& piece : pieces)
    bytes += sizeof(Piece) + piece.text.size() + piece.tokens.size() * sizeof(std::int32_t);
  return bytes;
}

}  // namespace

void ReplayMemory::recall(std::vector<ChatMessage>& messages) {
  const std::lock_guard lock(mutex_);
  ConversationHash hash;
  for (ChatMessage& message : messages) {
    hash.add(message);
    if (message.role != Role::kAssistant) continue;
    const auto found = index_.find(hash.value());
    if (found == index_.end()) continue;
    turns_.splice(turns_.begin(), turns_, found->second);
    message.sampled = found->second->sampled;
  }
}

void ReplayMemory::remember(std::span<const ChatMessage> messages, const ChatMessage& reply, Pieces sampled) {
  ConversationHash hash;
  for (const ChatMessage& message : messages) hash.add(message);
  hash.add(reply);
  const std::size_t bytes = size_of(sampled);
  const std::lock_guard lock(mutex_);
  if (const auto found = index_.find(hash.value()); found != index_.end()) {
    bytes_ -= found->second->bytes;
    turns_.erase(found->second);
    index_.erase(found);
  }
  turns_.push_front({hash.value(), std::move(sampled), bytes});
  index_[hash.value()] = turns_.begin();
  bytes_ += bytes;
  while (bytes_ > budget_ && !turns_.empty()) {
    bytes_ -= turns_.back().bytes;
    index_.erase(turns_.back().key);
    turns_.pop_back();
  }
}

}  // namespace lily
