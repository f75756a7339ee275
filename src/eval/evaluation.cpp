#include "eval/evaluation.h"

#include <algorithm>
#include <cmath>

#include "sampling/logits_math.h"
#include "support/error.h"

namespace lily {
namespace {

// A chunk's logits are [rows, vocab] float32: at 248,320 tokens a row is a megabyte.
constexpr std::int64_t kLogitBytes = std::int64_t{128} << 20;
constexpr std::int64_t kMaxRows = 512;

/// log(sum(exp(logits)))
double log_sum_exp(std::span<const float> logits, std::vector<float>& scratch) {
  scratch.resize(logits.size());
  const float top = largest(logits);
  return static_cast<double>(top) + std::log(exp_weights(logits, top, 1.0F, scratch));
}

double loss_of(const GoldenRun& run, std::size_t position) {
  return static_cast<double>(run.logsumexp[position]) - static_cast<double>(run.target_logits[position]);
}

/// The larger of `worst` and the difference. A NaN is the largest of all and stays.
double worse(double worst, float a, float b) {
  const double error = std::abs(static_cast<double>(a) - static_cast<double>(b));
  return error <= worst ? worst : error;
}

/// Adds one position of the native run, whose numbers are all stored.
void add_native(const Goldens& goldens, std::int64_t position, RunScore& score) {
  const auto at = static_cast<std::size_t>(position);
  const auto width = static_cast<std::size_t>(goldens.top_k);
  ++score.positions;
  score.agreements += goldens.native_top_id[at] == goldens.top_ids_at(position)[0] ? 1 : 0;
  score.loss += loss_of(goldens.native, at);
  score.reference_loss += loss_of(goldens.reference, at);
  for (std::size_t i = at * width; i < (at + 1) * width; ++i) {
    score.max_logit_error = worse(score.max_logit_error, goldens.native.top_logits[i], goldens.reference.top_logits[i]);
  }
  score.max_logit_error =
      worse(score.max_logit_error, goldens.native.target_logits[at], goldens.reference.target_logits[at]);
}

void add_lily(const Goldens& goldens, std::int64_t position, std::span<const float> logits, std::int32_t target,
              std::vector<float>& scratch, RunScore& score) {
  const auto at = static_cast<std::size_t>(position);
  const auto ids = goldens.top_ids_at(position);
  const float target_logit = logits[static_cast<std::size_t>(target)];
  ++score.positions;
  const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  score.agreements += best == ids[0] ? 1 : 0;
  score.loss += log_sum_exp(logits, scratch) - static_cast<double>(target_logit);
  score.reference_loss += loss_of(goldens.reference, at);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    score.max_logit_error = worse(score.max_logit_error, logits[static_cast<std::size_t>(ids[i])],
                                  goldens.reference.top_logits[at * ids.size() + i]);
  }
  score.max_logit_error = worse(score.max_logit_error, target_logit, goldens.reference.target_logits[at]);
}

Session::Limits limits_for(std::int64_t tokens) {
  return {.capacity = tokens, .snapshot_bytes = 0, .snapshot_interval = 0};
}

}  // namespace

double RunScore::top1_agreement() const {
  return static_cast<double>(agreements) / static_cast<double>(positions);
}
double RunScore::perplexity() const {
  return std::exp(loss / static_cast<double>(positions));
}
double RunScore::perplexity_ratio() const {
  return std::exp((loss - reference_loss) / static_cast<double>(positions));
}
double TextScore::perplexity() const {
  return std::exp(loss / static_cast<double>(tokens));
}
double TextScore::bits_per_byte() const {
  return loss / std::log(2.0) / static_cast<double>(bytes);
}

void teacher_force(Session& session, std::int64_t vocab, std::span<const std::int32_t> tokens,
                   const Session::RowLogits& visit) {
  LILY_CHECK(tokens.size() >= 2);
  const std::int64_t row_bytes = vocab * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t rows = std::clamp<std::int64_t>(kLogitBytes / row_bytes, 1, kMaxRows);
  session.reset();
  session.begin(tokens.first(tokens.size() - 1));
  while (session.pending() > 0) session.advance(rows, visit);
}

GoldenScores score_goldens(const Model& model, Ops& ops, const Goldens& goldens, std::int64_t limit,
                           const EvalProgress& progress) {
  const std::int64_t total = limit > 0 ? std::min(limit, goldens.positions) : goldens.positions;
  std::size_t longest = 0;
  for (const auto& tokens : goldens.sequences) longest = std::max(longest, tokens.size());
  Session session(model, ops, limits_for(static_cast<std::int64_t>(longest)));
  GoldenScores scores;
  std::vector<float> scratch;
  std::int64_t first = 0;  // position of the sequence's first token
  for (const std::vector<std::int32_t>& sequence : goldens.sequences) {
    if (first >= total) break;
    const auto length = std::min(static_cast<std::int64_t>(sequence.size()), total - first + 1);
    teacher_force(session, model.config.vocab_size, std::span(sequence).first(static_cast<std::size_t>(length)),
                  [&](std::int64_t at, std::span<const float> logits) {
                    const std::int32_t target = sequence[static_cast<std::size_t>(at) + 1];
                    add_lily(goldens, first + at, logits, target, scratch, scores.lily);
                    add_native(goldens, first + at, scores.native);
                    if (progress) progress(first + at + 1, total);
                  });
    first += length - 1;
  }
  scores.reference_perplexity = std::exp(scores.lily.reference_loss / static_cast<double>(total));
  return scores;
}

TextScore score_text(const Model& model, Ops& ops, const Tokenizer& tokenizer, std::span<const std::int32_t> tokens,
                     std::int64_t context, const EvalProgress& progress) {
  LILY_CHECK(context >= 2);
  if (tokens.size() < 2) throw_error("the text has {} tokens, expected two or more", tokens.size());
  const std::size_t window = std::min(static_cast<std::size_t>(context), tokens.size());
  Session session(model, ops, limits_for(static_cast<std::int64_t>(window)));
  TextScore score;
  std::vector<float> scratch;
  // A last window of one token has nothing to predict.
  for (std::size_t begin = 0; begin + 1 < tokens.size(); begin += window) {
    const auto part = tokens.subspan(begin, std::min(window, tokens.size() - begin));
    teacher_force(session, model.config.vocab_size, part, [&](std::int64_t at, std::span<const float> logits) {
      const std::int32_t target = part[static_cast<std::size_t>(at) + 1];
      ++score.tokens;
      score.bytes += static_cast<std::int64_t>(tokenizer.bytes(target).size());
      score.loss += log_sum_exp(logits, scratch) - static_cast<double>(logits[static_cast<std::size_t>(target)]);
      if (progress) progress(static_cast<std::int64_t>(begin) + at + 2, static_cast<std::int64_t>(tokens.size()));
    });
  }
  return score;
}

}  // namespace lily
