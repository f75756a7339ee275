// Remembers what was sampled, so that a conversation which comes back finds its prefix even though the client dropped
// the reasoning or wrote the tool arguments anew: an assistant turn is known by the visible conversation up to and
// including it (roles, contents, names and arguments of calls), and stands for the exact tokens that were sampled.
//
// Thread-safe. Bounded: the least recently used turns go first.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "text/chat_format.h"

namespace lily {

class ReplayMemory {
 public:
  explicit ReplayMemory(std::size_t budget_bytes) : budget_(budget_bytes) {}

  /// Sets `sampled` of each assistant message that is remembered.
  void recall(std::vector<ChatMessage>& messages);
  /// `reply` followed `messages`; `sampled` is how it is to be rendered (see ChatMessage::sampled).
  void remember(std::span<const ChatMessage> messages, const ChatMessage& reply, Pieces sampled);

 private:
  struct Turn {
    std::uint64_t key = 0;
    Pieces sampled;
    std::size_t bytes = 0;
  };

  std::size_t budget_;
  std::mutex mutex_;
  std::size_t bytes_ = 0;
  std::list<Turn> turns_;  // most recently used first
  std::unordered_map<std::uint64_t, std::list<Turn>::iterator> index_;
};

}  // namespace lily
