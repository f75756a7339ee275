// The choice of a token on the device against the CPU's sampler, draw by draw.
#include <fmt/format.h>

#include "kernel_case.h"
#include "sampling/candidates.h"

namespace lily::test {
namespace {

class SelectTest : public KernelTest {
 protected:
  /// The sampler's way, with counts of generated tokens and a given u.
  static std::int32_t reference(Floats logits, const SamplingParams& p, std::span<const uint> counts, uint vocab,
                                double u) {
    logits.resize(vocab);
    for (uint i = 0; i < vocab; ++i) {
      if (const auto bias = p.logit_bias.find(std::int32_t(i)); bias != p.logit_bias.end()) logits[i] += bias->second;
      if (counts[i] == 0) continue;
      logits[i] = logits[i] < 0 ? logits[i] * p.repetition_penalty : logits[i] / p.repetition_penalty;
      logits[i] -= p.presence_penalty + p.frequency_penalty * float(counts[i]);
    }
    if (p.temperature == 0) return std::int32_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
    Candidates candidates;
    candidates.select(logits, p);
    return candidates.draw(u);
  }

  void run(const SamplingParams& p, const Floats& logits, uint vocab, double u, bool with_counts = false,
           std::vector<uint> stops = {}) {
    const auto rows = uint(logits.size());
    std::vector<uint> counts(rows);
    if (with_counts)
      for (uint i = 0; i < rows; i += 3) counts[i] = i % 7;
    Floats bias(rows);
    for (const auto& [id, value] : p.logit_bias) bias[id] = value;
    SelectParams params{p.temperature,
                        uint(p.top_k),
                        p.top_p,
                        p.min_p,
                        p.presence_penalty,
                        p.frequency_penalty,
                        p.repetition_penalty,
                        !p.logit_bias.empty(),
                        vocab,
                        uint(stops.size()),
                        {}};
    std::copy(stops.begin(), stops.end(), params.stop);
    Floats uniforms(kTokenSlots, 2.F);
    uniforms[5] = float(u);
    const auto l = upload(logits), b = upload(bias), c = upload(counts), s = upload(std::vector{params});
    const auto kept = device_->allocate(rows * 4), adjusted = device_->allocate(rows * 4);
    const auto tops = device_->allocate((rows + 31) / 32 * 4);
    const auto uniform = upload(uniforms), tokens = upload(std::vector<uint>(kTokenSlots, 9U));
    const auto shown = upload(std::vector<uint>(kTokenSlots, 9U)), step = upload(std::vector<StepState>{{100, 4, 0}});
    device_->dispatch(kernels::select_adjust, {.groups = {(rows + 1023) / 1024}}, l->view<float>(), b->view<float>(),
                      c->view<uint>(), s->view<SelectParams>(), step->view<StepState>(), kept->view<float>(),
                      adjusted->view<float>(), tops->view<float>(), rows);
    device_->dispatch(kernels::select_token, {}, adjusted->view<float>(), tops->view<float>(), s->view<SelectParams>(),
                      uniform->view<float>(), c->view<uint>(), tokens->view<uint>(), shown->view<uint>(),
                      step->view<StepState>(), rows);
    const auto drawn = download<uint>(*tokens, kTokenSlots);
    const auto kept_bits = download<uint>(*kept, rows);
    EXPECT_EQ(std::memcmp(kept_bits.data(), logits.data(), rows * 4), 0);
    const std::int32_t expected = reference(logits, p, counts, vocab, u);
    EXPECT_EQ(std::int32_t(drawn[5]), expected)
        << fmt::format("T {} k {} p {} min {} u {}, {} logits", p.temperature, p.top_k, p.top_p, p.min_p, u, rows);
    EXPECT_EQ(download<uint>(*shown, kTokenSlots), drawn);
    EXPECT_EQ(drawn[4], 9U);
    const auto after = download<StepState>(*step, 1)[0];
    EXPECT_EQ(after.position, 101U);
    EXPECT_EQ(after.drawn, 5U);
    EXPECT_EQ(after.stopped, std::find(stops.begin(), stops.end(), uint(expected)) != stops.end() ? 1U : 0U);
    EXPECT_EQ(download<uint>(*c, rows)[expected], counts[expected] + 1);
  }
};

SamplingParams filters(float temperature, int top_k, float top_p, float min_p) {
  SamplingParams p;
  p.temperature = temperature;
  p.top_k = top_k;
  p.top_p = top_p;
  p.min_p = min_p;
  return p;
}

TEST_P(SelectTest, TakesTheLargest) {
  Floats logits = random(5000);
  run(filters(0, 20, 1, 0), logits, 5000, 0);
  logits[4990] = logits[77] = logits[3000] = 9;  // the lowest id of the best
  run(filters(0, 20, 1, 0), logits, 5000, 0);
  logits[10] = NAN;
  run(filters(0, 20, 1, 0), logits, 5000, 0);
  logits[40] = 50;  // padding
  run(filters(0, 20, 1, 0), logits, 40, 0);
  run(filters(0, 20, 1, 0), random(33), 1, 0, false, {3, 0});
}

TEST_P(SelectTest, DrawsFromTheBest) {
  for (const double u : {0.0, 0.3, 0.77, 0.999}) {
    run(filters(1, 20, 0.95F, 0), random(8192, 3), 8100, u);
    run(filters(0.7F, 20, 0.8F, 0.1F), random(8192, 3), 8192, u);
    run(filters(1.5F, 32, 1, 0), random(700, 1), 700, u);
    run(filters(1, 1, 0.5F, 0), random(700, 1), 700, u);
    run(filters(1, 20, 0.95F, 0), random(20, 1), 19, u);
    run(filters(1, 20, 0.95F, 0), Floats(8192, 1.5F), 8192, u);  // all equal: the lowest ids
  }
}

TEST_P(SelectTest, DrawsWithAnyFilter) {
  for (const double u : {0.0, 0.4, 0.93}) {
    run(filters(1, 0, 1, 0), random(3000, 2), 2990, u);
    run(filters(1, 0, 0.9F, 0), random(3000, 2), 3000, u);
    run(filters(1, 100, 0.9F, 0), random(3000, 2), 3000, u);
    run(filters(2, 0, 1, 0.05F), random(3000, 2), 3000, u);
    run(filters(1, 50, 1, 0), Floats(300, 0.25F), 300, u);
    run(filters(1, 50, 0.5F, 0), Floats(300, 0.25F), 300, u);
  }
}

TEST_P(SelectTest, AppliesPenaltiesAndBias) {
  SamplingParams p = filters(1, 20, 0.95F, 0);
  p.presence_penalty = 1.5F;
  p.frequency_penalty = 0.25F;
  p.repetition_penalty = 1.3F;
  p.logit_bias = {{5, 9.F}, {6, -100.F}, {600, 8.5F}};
  for (const double u : {0.1, 0.6, 0.9}) run(p, random(900, 2), 900, u, true);
  p.temperature = 0;
  run(p, random(900, 2), 900, 0, true);
}

LILY_KERNEL_TESTS(SelectTest);

}  // namespace
}  // namespace lily::test
