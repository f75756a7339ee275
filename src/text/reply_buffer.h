// The part of a reply that is not interpreted yet, and the tags that may stand in it. A tag can be incomplete: whether
// it is one is then known only with the next tokens, or with the end of the reply.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lily {

class ReplyBuffer {
 public:
  void push(std::string_view text, bool control);
  void end() { ended_ = true; }
  bool ended() const { return ended_; }  // nothing follows what is there

  std::size_t size() const { return text_.size() - begin_; }
  bool empty() const { return size() == 0; }
  std::string_view text() const { return std::string_view(text_).substr(begin_); }
  /// The control token that begins at `offset`; empty when there is ordinary text or the end.
  std::string_view control_at(std::size_t offset) const;
  /// The character at `offset` when it is ordinary text, NUL otherwise.
  char text_at(std::size_t offset) const;
  /// How much ordinary text without any character of `stops` is at the beginning.
  std::size_t run(std::string_view stops) const;
  std::string take(std::size_t size);

 private:
  enum Mark : char { kText, kControlBegin, kControlRest };

  std::string text_;
  std::string marks_;  // a Mark per byte of text_
  std::size_t begin_ = 0;
  bool ended_ = false;
};

enum class Match { kNo, kUnknown, kYes };  // kUnknown: more of the reply is needed

/// Yes if one of them is; no only if all are.
Match either(Match a, Match b);

/// Matches a sequence from an offset on, step by step: Scan(buffer,
/// 0).text("</function>").space().control("</tool_call>").
class Scan {
 public:
  Scan(const ReplyBuffer& buffer, std::size_t offset) : buffer_(&buffer), offset_(offset) {}

  Scan& text(std::string_view literal);
  Scan& control(std::string_view token);
  Scan& space();  // any white space, also none, up to a bound
  Scan& end_of_reply();
  /// `opening` NAME `>`, e.g. "<function=" NAME ">". A name has no line break and no '<'; spaces and quotes around it
  /// are dropped.
  Scan& tag(std::string_view opening, std::string& name);
  /// Replaces the result by `match`, if everything matched so far.
  Scan& then(Match match);

  Match match() const { return match_; }
  bool matched() const { return match_ == Match::kYes; }
  std::size_t offset() const { return offset_; }  // after what matched

 private:
  const ReplyBuffer* buffer_;
  std::size_t offset_;
  Match match_ = Match::kYes;
};

}  // namespace lily
