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
  return accept(sampler_.sample(logits, allowed()));
}

GeneratedToken Generation::take(std::int32_t token) {
  return accept({.token = token, .top = {}});
}

/// A grammar that is satisfied has nothing to say after its end.
std::span<const std::int32_t> Generation::ends() const {
  return !options_.ignore_eos || options_.constraint ? std::span(eos_) : std::span<const std::int32_t>();
}

GeneratedToken Generation::accept(Sampled sampled) {
  GeneratedToken result;
  result.sampled = std::move(sampled);
  const std::int32_t token = result.sampled.token;
  sampler_.accept(token);
  if (options_.constraint && !options_.in_thinking) options_.constraint->accept(token);
  ++count_;
  const std::span<const std::int32_t> end_tokens = ends();
  const bool is_end = std::find(end_tokens.begin(), end_tokens.end(), token) != end_tokens.end();
  if (!is_end) add_text(token, result);
  if (is_end) {
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

bool Generation::start_drawing(Session& session, std::int32_t token) {
  const bool budget = options_.in_thinking && options_.thinking_budget >= 0;
  if (options_.constraint || options_.top_logprobs >= 0 || budget || !session.can_draw()) return false;
  const std::vector<std::int32_t> generated = sampler_.accepted();
  session.start_drawing({.token = token,
                         .vocab = tokenizer_.size(),
                         .sampling = &options_.sampling,
                         .generated = generated,
                         .stops = ends(),
                         .uniform = [this] { return sampler_.random_unit(); }});
  return true;
}

std::optional<std::string> Generation::matched_stop() const {
  if (!stops_.matched()) return {};
  return options_.stop[*stops_.matched()];
}

FinishReason generate(Session& session, Generation& generation,
                      const std::function<bool(const GeneratedToken&)>& on_token) {
  try {
    for (;;) {
      const GeneratedToken token =
          session.drawing() ? generation.take(session.draw(generation.goes_on())) : generation.next(session.logits());
      const bool wanted = on_token(token);
      if (!wanted || token.finish) {
        session.stop_drawing();
        return wanted ? *token.finish : FinishReason::kCancelled;
      }
      if (!session.drawing() && !generation.start_drawing(session, token.sampled.token)) {
        session.decode(token.sampled.token);
      }
    }
  } catch (...) {
    session.stop_drawing();
    throw;
  }
}

}  // namespace lily
