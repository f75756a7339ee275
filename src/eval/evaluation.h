// Teacher-forced evaluation: the model reads given text, and at every position its prediction of the next token is
// compared with a stored reference or scored by itself.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "eval/goldens.h"
#include "model/model.h"
#include "session/session.h"
#include "text/tokenizer.h"

namespace lily {

/// One run against the float32 reference, over the same positions.
struct RunScore {
  std::int64_t positions = 0;
  std::int64_t agreements = 0;   // positions at which both have the same most likely token
  double loss = 0.0;             // sum of -log p(next token) in nats
  double reference_loss = 0.0;   // the reference's
  double max_logit_error = 0.0;  // over the reference's top_k most likely tokens and the token that follows

  double top1_agreement() const;  // 0 to 1
  double perplexity() const;
  double perplexity_ratio() const;  // perplexity / the reference's
};

struct GoldenScores {
  RunScore lily;
  RunScore native;  // MLX-LM as it comes, against the same reference
  double reference_perplexity = 0.0;
};

struct TextScore {
  std::int64_t tokens = 0;  // that were predicted: all but the first of each window
  std::int64_t bytes = 0;   // of these tokens
  double loss = 0.0;        // in nats

  double perplexity() const;
  double bits_per_byte() const;
};

/// Positions done, positions to do.
using EvalProgress = std::function<void(std::int64_t, std::int64_t)>;

/// Runs `tokens` (two or more) through the emptied session and shows the logits at each position that has a next token.
void teacher_force(Session& session, std::int64_t vocab, std::span<const std::int32_t> tokens,
                   const Session::RowLogits& visit);

/// The first `limit` positions of the goldens; 0: all.
GoldenScores score_goldens(const Model& model, Ops& ops, const Goldens& goldens, std::int64_t limit = 0,
                           const EvalProgress& progress = {});

/// Text in windows of `context` tokens (two or more), each read from an empty context. Throws Error on less than two
/// tokens.
TextScore score_text(const Model& model, Ops& ops, const Tokenizer& tokenizer, std::span<const std::int32_t> tokens,
                     std::int64_t context, const EvalProgress& progress = {});

}  // namespace lily
