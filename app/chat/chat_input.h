// Where the user's inputs come from: a line editor on a terminal, or standard input, where each line is an input by
// itself (continued after a backslash and within """ ... """ as in the editor).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "terminal/signals.h"

namespace lily {

class ChatInput {
 public:
  enum class Result { kInput, kInterrupt, kEnd };

  virtual ~ChatInput() = default;
  /// The next whole input as typed; see input_text().
  virtual Result read(std::string_view prompt, std::string& input) = 0;
};

/// An editor with history when standard input and output are a terminal, plain lines otherwise. `style`: whether the
/// prompt may stand out. `signals` must outlive it.
std::unique_ptr<ChatInput> make_chat_input(SignalFlags& signals, bool style);

}  // namespace lily
