#include "engine/generation.h"

#include <algorithm>

#include "support/error.h"

namespace lily {

Generation::Generation(const Tokenizer& tokenizer, std::span<const std::int32_t> eos, const GenerationOptions& options,
                       std::int64_t room)
    : tokenizer_(tokenizer),
      eos_(eos.begin(), eos.end()),
      options_(options),
      sampler_(options.sampling, tokenizer.size(), options.top_logprobs),
      decoder_(tokenizer),
      stops_(options.stop),
      end_of_thinking_(tokenizer.added_token("</think>")),
      tool_call_(tokenizer.added_token("<tool_call>")),
      limit_(options.max_tokens == 0 ? room : std::min(room, options.max_tokens)) {
  if (options.max_tokens < 0) throw_error("max_tokens is {}, expected 0 or more", options.max_tokens);
  LILY_CHECK(room > 0);
  if (end_of_thinking_ && options_.in_thinking) prepare_thinking_masks();
}

void Generation::prepare_thinking_masks() {
  const std::size_t words = static_cast<std::size_t>(tokenizer_.size() + 31) / 32;
  const auto bit = [](std::int32_t token) { return 1U << (token % 32); };
  const auto word = [](std::int32_t token) { return static_cast<std::size_t>(token) / 32; };
  only_end_of_thinking_.assign(words, 0);
  only_end_of_thinking_[word(*end_of_thinking_)] |= bit(*end_of_thinking_);
  if (!options_.constraint) return;
  // A reply that ends, or calls a tool, without closing its thoughts would escape the constraint.
  until_end_of_thinking_.assign(words, ~0U);
  for (std::int32_t token = 0; token < tokenizer_.size(); ++token) {
    if (tokenizer_.is_added(token) && token != end_of_thinking_) until_end_of_thinking_[word(token)] &= ~bit(token);
  }
}

std::span<const std::uint32_t> Generation::allowed() {
  if (options_.in_thinking) {
    const bool spent = options_.thinking_budget >= 0 && count_ >= options_.thinking_budget;
    return spent ? only_end_of_thinking_ : until_end_of_thinking_;
  }
  return options_.constraint ? options_.constraint->allowed() : std::span<const std::uint32_t>();
}

GeneratedToken Generation::next(std::span<const float> logits) {
  GeneratedToken result;
  result.sampled = sampler_.sample(logits, allowed());
  const std::int32_t token = result.sampled.token;
  sampler_.accept(token);
  if (options_.constraint && !options_.in_thinking) options_.constraint->accept(token);
  ++count_;
  // A grammar that is satisfied has nothing to say after its end.
  const bool may_end = !options_.ignore_eos || options_.constraint;
  const bool ends = may_end && std::find(eos_.begin(), eos_.end(), token) != eos_.end();
  if (!ends) add_text(token, result);
  if (ends) {
    result.is_end = true;
    result.finish = FinishReason::kStop;
  } else if (!result.finish && count_ == limit_) {
    result.finish = FinishReason::kLength;
  }
  if (result.finish && !stops_.stopped()) result.text += stops_.push(decoder_.finish()) + stops_.finish();
  return result;
}

void Generation::add_text(std::int32_t token, GeneratedToken& result) {
  if (tokenizer_.is_added(token)) {
    // A control token interrupts the text: what was held back can no longer become a character or a stop string.
    const std::string held = decoder_.finish();
    result.text = options_.in_thinking ? held : stops_.push(held) + stops_.finish();
    result.control = tokenizer_.bytes(token);
    // A call may begin in the thoughts; what follows it is no thinking any more, and no budget may cut it.
    if (token == end_of_thinking_ || token == tool_call_) options_.in_thinking = false;
    return;
  }
  const std::string text = decoder_.push(token);
  result.text = options_.in_thinking ? text : stops_.push(text);
  if (stops_.stopped()) result.finish = FinishReason::kStop;
}

std::optional<std::string> Generation::matched_stop() const {
  if (!stops_.matched()) return {};
  return options_.stop[*stops_.matched()];
}

FinishReason generate(Session& session, Generation& generation,
                      const std::function<bool(const GeneratedToken&)>& on_token) {
  for (;;) {
    const GeneratedToken token = generation.next(session.logits());
    if (!on_token(token)) return FinishReason::kCancelled;
    if (token.finish) return *token.finish;
    session.decode(token.sampled.token);
  }
}

}  // namespace lily
