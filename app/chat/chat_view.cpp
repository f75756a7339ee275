#include "chat/chat_view.h"

#include <fmt/format.h>

#include <cstdio>

#include "support/error.h"

namespace lily {
namespace {

constexpr std::string_view kReset = "\x1b[0m";
constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kCyan = "\x1b[36m";

}  // namespace

std::string visible(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool is_c1 = byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (is_c1) {
      out += "\xef\xbf\xbd";
      ++i;
    } else if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) {
      out += '^';
      out += static_cast<char>(byte ^ 0x40);
    } else {
      out += text[i];
    }
  }
  return out;
}

void ChatView::show(const ReplyEvent& event) {
  switch (event.kind) {
    case ReplyEvent::Kind::kReasoning:
      enter(Section::kReasoning);
      put(event.text);
      break;
    case ReplyEvent::Kind::kContent:
      enter(Section::kContent);
      put(event.text);
      break;
    case ReplyEvent::Kind::kToolCall:
      enter(Section::kNone);
      enter(Section::kCall);
      put("-> " + event.name + " ");
      break;
    case ReplyEvent::Kind::kToolArguments:
      put(event.text);
      break;
    case ReplyEvent::Kind::kToolCallEnd:
      enter(Section::kNone);
      break;
  }
}

void ChatView::show_tool_result(std::string_view text) {
  enter(Section::kCall);
  put("<- ");
  put(text);
  enter(Section::kNone);
}

void ChatView::end_reply() {
  enter(Section::kNone);
  std::fflush(stdout);
}

void ChatView::enter(Section section) {
  if (section == section_) return;
  if (section_ != Section::kNone) {
    put_style(kReset);
    if (!at_line_begin_) put("\n");
    if (section_ == Section::kReasoning) put(style_ ? "\n" : "</think>\n\n");
  }
  section_ = section;
  if (section == Section::kReasoning) {
    put_style(kDim);
    if (!style_) put("<think>\n");
  }
  if (section == Section::kCall) put_style(kCyan);
}

void ChatView::put(std::string_view text) {
  if (text.empty()) return;
  at_line_begin_ = text.back() == '\n';
  const std::string shown = terminal_ ? visible(text) : std::string(text);
  if (std::fwrite(shown.data(), 1, shown.size(), stdout) != shown.size() || std::fflush(stdout) != 0) {
    throw Error("cannot write to standard output");
  }
}

void ChatView::put_style(std::string_view code) {
  if (style_) std::fwrite(code.data(), 1, code.size(), stdout);
}

void ChatView::note(std::string_view text) {
  end_reply();
  if (terminal_) {
    fmt::print("{}{}{}\n", style_ ? kDim : "", visible(text), style_ ? kReset : "");
    std::fflush(stdout);
  } else {
    fmt::print(stderr, "{}\n", text);
  }
}

void ChatView::error(std::string_view message, std::string_view hint) {
  end_reply();
  fmt::print(stderr, "lily: {}\n", visible(message));
  if (!hint.empty()) fmt::print(stderr, "  {}\n", visible(hint));
}

}  // namespace lily
