#include "reference/reference_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "support/error.h"

namespace lily {
namespace {

using Doubles = std::vector<double>;

struct ReferenceTensor final : Storage {
  std::vector<float> values;
};

// [out, in], dequantised.
struct ReferenceMatrix final : Storage {
  std::int64_t out = 0;
  std::int64_t in = 0;
  Doubles values;
};

struct ReferenceVector final : Storage {
  Doubles values;
};

struct ReferenceMlp {
  ReferenceMatrix gate, up, down;
};

struct ReferenceExperts final : Storage {
  std::vector<std::unique_ptr<ReferenceMlp>> experts;  // the shared one last
};

float* data(const Tensor& tensor) {
  return static_cast<ReferenceTensor&>(*tensor.storage).values.data();
}
const ReferenceMatrix& matrix(const Weight& weight) {
  return static_cast<const ReferenceMatrix&>(*weight.storage);
}
const Doubles& numbers(const Vector& vector) {
  return static_cast<const ReferenceVector&>(*vector.storage).values;
}

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
double silu(double x) {
  return x * sigmoid(x);
}
double softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

// Appends the rows of expert `index`: w[o][i] = scales[o][i / group] * code[o][i] + biases[o][i / group].
void append_rows(const QuantizedMatrix& m, std::int64_t index, ReferenceMatrix& to) {
  const std::int64_t codes_per_word = 32 / m.bits;
  for (std::int64_t o = index * m.out; o < (index + 1) * m.out; ++o) {
    for (std::int64_t i = 0; i < m.in; ++i) {
      const std::uint32_t word = m.codes[o * (m.in / codes_per_word) + i / codes_per_word];
      const std::uint32_t code = (word >> (i % codes_per_word * m.bits)) & ((1U << m.bits) - 1);
      const auto at = static_cast<std::size_t>(o * (m.in / m.group) + i / m.group);
      to.values.push_back(static_cast<double>(static_cast<float>(m.scales[at])) * code +
                          static_cast<double>(static_cast<float>(m.biases[at])));
    }
  }
  to.out += m.out;
  to.in = m.in;
}

Doubles multiply(const ReferenceMatrix& w, const Doubles& x) {
  Doubles y(static_cast<std::size_t>(w.out));
  for (std::int64_t o = 0; o < w.out; ++o) {
    for (std::int64_t i = 0; i < w.in; ++i) y[o] += w.values[o * w.in + i] * x[i];
  }
  return y;
}

// x / sqrt(mean(x^2) + eps) * factor
Doubles normalise(const Doubles& x, double eps, double factor) {
  const double mean = std::inner_product(x.begin(), x.end(), x.begin(), 0.0) / static_cast<double>(x.size());
  Doubles y(x);
  for (double& value : y) value *= factor / std::sqrt(mean + eps);
  return y;
}

Doubles rms_norm(const Doubles& x, const Doubles& weight, double eps) {
  Doubles y = normalise(x, eps, 1.0);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] *= weight[i];
  return y;
}

Doubles slice(const float* begin, std::int64_t count) {
  return Doubles(begin, begin + count);
}

class ReferenceState final : public SequenceState {
 public:
  explicit ReferenceState(const ModelConfig& config) : config_(config) {
    const std::int64_t heads = config.linear_num_value_heads;
    for (std::int64_t i = 0; i < config.num_linear_layers(); ++i) {
      delta.emplace_back(heads * config.linear_value_head_dim * config.linear_key_head_dim);
      conv.emplace_back((config.linear_conv_kernel_dim - 1) * config.conv_channels());
    }
    kv.resize(static_cast<std::size_t>(config.num_attention_layers()));
  }

  std::string layout() const override { return "reference"; }
  std::size_t recurrent_bytes() const override {
    return delta.size() * (delta.front().size() + conv.front().size()) * sizeof(double);
  }
  std::size_t kv_bytes_per_token() const override {
    return kv.size() * static_cast<std::size_t>(2 * config_.kv_rows()) * sizeof(double);
  }
  void reset() override {
    for (Doubles& layer : delta) std::fill(layer.begin(), layer.end(), 0.0);
    for (Doubles& layer : conv) std::fill(layer.begin(), layer.end(), 0.0);
  }
  void read_recurrent(std::span<std::byte> out) const override {
    std::byte* to = out.data();
    for (const auto* group : {&delta, &conv}) {
      for (const Doubles& layer : *group) {
        std::memcpy(to, layer.data(), layer.size() * sizeof(double));
        to += layer.size() * sizeof(double);
      }
    }
  }
  void write_recurrent(std::span<const std::byte> in) override {
    const std::byte* from = in.data();
    for (auto* group : {&delta, &conv}) {
      for (Doubles& layer : *group) {
        std::memcpy(layer.data(), from, layer.size() * sizeof(double));
        from += layer.size() * sizeof(double);
      }
    }
  }
  void read_kv(std::int64_t begin, std::int64_t end, std::span<std::byte> out) const override {
    const std::size_t row = static_cast<std::size_t>(2 * config_.kv_rows());
    std::byte* to = out.data();
    for (std::int64_t token = begin; token < end; ++token) {
      for (const Doubles& layer : kv) {
        std::memcpy(to, layer.data() + token * row, row * sizeof(double));
        to += row * sizeof(double);
      }
    }
  }
  void write_kv(std::int64_t begin, std::int64_t end, std::span<const std::byte> in) override {
    const std::size_t row = static_cast<std::size_t>(2 * config_.kv_rows());
    const std::byte* from = in.data();
    for (std::int64_t token = begin; token < end; ++token) {
      for (Doubles& layer : kv) {
        layer.resize(std::max(layer.size(), (token + 1) * row));
        std::memcpy(layer.data() + token * row, from, row * sizeof(double));
        from += row * sizeof(double);
      }
    }
  }

  std::vector<Doubles> delta;  // per gated-delta layer: S [value heads][value dim][key dim]
  std::vector<Doubles> conv;   // per gated-delta layer: [kernel - 1][channels], oldest first
  std::vector<Doubles> kv;     // per attention layer: [token][keys of all heads | values of all heads]

 private:
  const ModelConfig config_;
};

class ReferenceOps final : public Ops {
 public:
  explicit ReferenceOps(const ModelConfig& config) : c_(config) {}

  Weight load_linear(std::span<const QuantizedMatrix> parts) override {
    auto m = std::make_shared<ReferenceMatrix>();
    for (const QuantizedMatrix& part : parts) append_rows(part, 0, *m);
    return {m, m->out, m->in};
  }

  std::shared_ptr<const Storage> load_experts(const MlpMatrices& routed, const MlpMatrices& shared) override {
    auto stack = std::make_shared<ReferenceExperts>();
    const auto append = [&](const MlpMatrices& from, std::int64_t index) {
      auto mlp = std::make_unique<ReferenceMlp>();
      append_rows(from.gate_proj, index, mlp->gate);
      append_rows(from.up_proj, index, mlp->up);
      append_rows(from.down_proj, index, mlp->down);
      stack->experts.push_back(std::move(mlp));
    };
    for (std::int64_t e = 0; e < routed.gate_proj.experts; ++e) append(routed, e);
    append(shared, 0);
    return stack;
  }

  Vector load_vector(std::span<const float> values) override {
    auto vector = std::make_shared<ReferenceVector>();
    vector->values.assign(values.begin(), values.end());
    return {vector, static_cast<std::int64_t>(values.size())};
  }

  std::unique_ptr<SequenceState> new_state(std::int64_t) override { return std::make_unique<ReferenceState>(c_); }

  Tensor tensor(std::int64_t rows, std::int64_t cols) override {
    auto storage = std::make_shared<ReferenceTensor>();
    storage->values.resize(static_cast<std::size_t>(rows * cols), std::nanf(""));
    return {storage, rows, cols};
  }

  void read(const Tensor& tensor, std::span<float> out) override { std::copy_n(data(tensor), out.size(), out.begin()); }

  void embed(const Weight& table, std::span<const std::int32_t> tokens, Tensor& x) override {
    for (std::int64_t r = 0; r < x.rows; ++r) {
      for (std::int64_t i = 0; i < x.cols; ++i) {
        data(x)[r * x.cols + i] = static_cast<float>(matrix(table).values[tokens[r] * x.cols + i]);
      }
    }
  }

  void project(const Tensor& x, const Vector& norm, const Weight& weight, Tensor& out) override {
    for (std::int64_t r = 0; r < x.rows; ++r) {
      store(multiply(matrix(weight), rms_norm(row(x, r), numbers(norm), c_.rms_norm_eps)), out, r);
    }
  }

  void project_add(const Tensor& in, const Weight& weight, Tensor& x) override {
    for (std::int64_t r = 0; r < x.rows; ++r) {
      Doubles sum = multiply(matrix(weight), row(in, r));
      for (std::int64_t i = 0; i < x.cols; ++i) sum[i] += data(x)[r * x.cols + i];
      store(sum, x, r);
    }
  }

  void gated_delta(const Tensor& projected, const GatedDeltaWeights& weights, std::int64_t layer, Batch batch,
                   Tensor& out) override {
    for (const Segment& segment : batch) {
      auto& state = static_cast<ReferenceState&>(*segment.state);
      for (std::int64_t r = segment.first_row; r < segment.first_row + segment.rows; ++r) {
        store(delta_step(row(projected, r), weights, state.delta[layer], state.conv[layer]), out, r);
      }
    }
  }

  void attention(const Tensor& projected, const AttentionWeights& weights, std::int64_t layer, Batch batch,
                 Tensor& out) override {
    for (const Segment& segment : batch) {
      auto& kv = static_cast<ReferenceState&>(*segment.state).kv[layer];
      for (std::int64_t i = 0; i < segment.rows; ++i) {
        const std::int64_t r = segment.first_row + i;
        store(attend_step(row(projected, r), weights, segment.position + i, kv), out, r);
      }
    }
  }

  void mixture_of_experts(const MoeWeights& weights, Tensor& x) override {
    for (std::int64_t r = 0; r < x.rows; ++r) {
      const Doubles before = row(x, r);
      Doubles sum = experts(rms_norm(before, numbers(weights.post_attention_layernorm), c_.rms_norm_eps), weights);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += before[i];
      store(sum, x, r);
    }
  }

  void lm_head(const Tensor& x, const Vector& norm, const Weight& head, std::span<const std::int64_t> rows,
               Tensor& logits) override {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      store(multiply(matrix(head), rms_norm(row(x, rows[i]), numbers(norm), c_.rms_norm_eps)), logits,
            static_cast<std::int64_t>(i));
    }
  }

 private:
  static Doubles row(const Tensor& tensor, std::int64_t r) {
    return slice(data(tensor) + r * tensor.cols, tensor.cols);
  }
  static void store(const Doubles& values, Tensor& to, std::int64_t r) {
    LILY_CHECK(static_cast<std::int64_t>(values.size()) == to.cols);
    for (std::int64_t i = 0; i < to.cols; ++i) data(to)[r * to.cols + i] = static_cast<float>(values[i]);
  }

  // silu of the causal convolution of one token's q | k | v; the history moves on by one.
  Doubles convolve(const Doubles& projected, const Doubles& taps, Doubles& history) const {
    const std::int64_t channels = c_.conv_channels();
    const std::int64_t kernel = c_.linear_conv_kernel_dim;
    history.insert(history.end(), projected.begin(), projected.begin() + channels);
    Doubles y(static_cast<std::size_t>(channels));
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t j = 0; j < kernel; ++j) y[c] += taps[c * kernel + j] * history[j * channels + c];
      y[c] = silu(y[c]);
    }
    history.erase(history.begin(), history.begin() + channels);
    return y;
  }

  // One token through the gated delta net, from in_proj's output to out_proj's input.
  Doubles delta_step(const Doubles& projected, const GatedDeltaWeights& w, Doubles& states, Doubles& history) const {
    const std::int64_t Hk = c_.linear_num_key_heads, Hv = c_.linear_num_value_heads;
    const std::int64_t Dk = c_.linear_key_head_dim, Dv = c_.linear_value_head_dim;
    const Doubles qkv = convolve(projected, numbers(w.conv1d), history);
    const double* z = projected.data() + c_.conv_channels();
    const double* b = z + c_.value_rows();
    const double* a = b + Hv;
    Doubles out;
    for (std::int64_t h = 0; h < Hv; ++h) {
      const std::int64_t key_head = h / (Hv / Hk);
      const auto part = [&](std::int64_t at, std::int64_t n) { return Doubles(&qkv[at], &qkv[at] + n); };
      const auto dim = static_cast<double>(Dk);
      const Doubles q = normalise(part(key_head * Dk, Dk), c_.rms_norm_eps, 1 / dim);
      const Doubles k = normalise(part((Hk + key_head) * Dk, Dk), c_.rms_norm_eps, 1 / std::sqrt(dim));
      const Doubles v = part(2 * Hk * Dk + h * Dv, Dv);
      const double g = std::exp(-std::exp(numbers(w.A_log)[h]) * softplus(a[h] + numbers(w.dt_bias)[h]));
      const double beta = sigmoid(b[h]);
      Doubles y(static_cast<std::size_t>(Dv));
      for (std::int64_t i = 0; i < Dv; ++i) {
        double* s = &states[(h * Dv + i) * Dk];
        double read = 0;
        for (std::int64_t j = 0; j < Dk; ++j) {
          s[j] *= g;
          read += s[j] * k[j];
        }
        const double u = beta * (v[i] - read);
        for (std::int64_t j = 0; j < Dk; ++j) {
          s[j] += u * k[j];
          y[i] += s[j] * q[j];
        }
      }
      y = rms_norm(y, numbers(w.norm), c_.rms_norm_eps);
      for (std::int64_t i = 0; i < Dv; ++i) out.push_back(silu(z[h * Dv + i]) * y[i]);
    }
    return out;
  }

  // Rotates the first rotary_dim values, halves paired.
  void rope(Doubles& x, std::int64_t position) const {
    const std::int64_t half = c_.rotary_dim / 2;
    for (std::int64_t i = 0; i < half; ++i) {
      const double frequency =
          std::pow(c_.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(c_.rotary_dim));
      const double angle = static_cast<double>(position) * frequency;
      const double first = x[i], second = x[half + i];
      x[i] = first * std::cos(angle) - second * std::sin(angle);
      x[half + i] = second * std::cos(angle) + first * std::sin(angle);
    }
  }

  // One token through attention, from in_proj's output to o_proj's input.
  Doubles attend_step(const Doubles& projected, const AttentionWeights& w, std::int64_t position, Doubles& kv) const {
    const std::int64_t H = c_.num_attention_heads, K = c_.num_key_value_heads, D = c_.head_dim;
    const std::int64_t token_values = 2 * c_.kv_rows();
    const auto part = [&](std::int64_t at) { return Doubles(&projected[at], &projected[at] + D); };
    kv.resize(static_cast<std::size_t>((position + 1) * token_values));
    double* own = &kv[position * token_values];
    for (std::int64_t h = 0; h < K; ++h) {
      Doubles k = rms_norm(part(c_.query_rows() + h * D), numbers(w.k_norm), c_.rms_norm_eps);
      rope(k, position);
      std::copy(k.begin(), k.end(), own + h * D);
      const Doubles v = part(c_.query_rows() + c_.kv_rows() + h * D);
      std::copy(v.begin(), v.end(), own + c_.kv_rows() + h * D);
    }
    Doubles out;
    for (std::int64_t h = 0; h < H; ++h) {
      Doubles q = rms_norm(part(2 * h * D), numbers(w.q_norm), c_.rms_norm_eps);
      rope(q, position);
      const double* keys = kv.data() + h / (H / K) * D;
      const double* values = keys + c_.kv_rows();
      Doubles weights(static_cast<std::size_t>(position + 1));
      for (std::int64_t t = 0; t <= position; ++t) {
        for (std::int64_t i = 0; i < D; ++i) weights[t] += q[i] * keys[t * token_values + i];
        weights[t] /= std::sqrt(static_cast<double>(D));
      }
      const double maximum = *std::max_element(weights.begin(), weights.end());
      for (double& weight : weights) weight = std::exp(weight - maximum);
      const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
      for (std::int64_t i = 0; i < D; ++i) {
        double value = 0;
        for (std::int64_t t = 0; t <= position; ++t) value += weights[t] / sum * values[t * token_values + i];
        out.push_back(value * sigmoid(projected[2 * h * D + D + i]));
      }
    }
    return out;
  }

  static Doubles mlp(const ReferenceMlp& mlp, const Doubles& x) {
    Doubles hidden = multiply(mlp.gate, x);
    const Doubles up = multiply(mlp.up, x);
    for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] = silu(hidden[i]) * up[i];
    return multiply(mlp.down, hidden);
  }

  Doubles experts(const Doubles& x, const MoeWeights& weights) const {
    const auto& stack = static_cast<const ReferenceExperts&>(*weights.experts);
    Doubles scores = multiply(matrix(weights.router), x);
    const double shared_gate = sigmoid(scores.back());
    scores.pop_back();
    std::vector<std::size_t> order(scores.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
    order.resize(static_cast<std::size_t>(c_.num_experts_per_tok));
    double sum = 0;
    for (const std::size_t e : order) sum += std::exp(scores[e] - scores[order.front()]);

    Doubles out(x.size());
    const auto add = [&](const ReferenceMlp& expert, double share) {
      const Doubles y = mlp(expert, x);
      for (std::size_t i = 0; i < y.size(); ++i) out[i] += share * y[i];
    };
    for (const std::size_t e : order) add(*stack.experts[e], std::exp(scores[e] - scores[order.front()]) / sum);
    add(*stack.experts.back(), shared_gate);
    return out;
  }

  const ModelConfig c_;
};

}  // namespace

std::unique_ptr<Ops> make_reference_ops(const ModelConfig& config) {
  return std::make_unique<ReferenceOps>(config);
}

Tensor reference_tensor(std::int64_t rows, std::int64_t cols, std::span<const float> values) {
  auto storage = std::make_shared<ReferenceTensor>();
  storage->values.assign(values.begin(), values.end());
  LILY_CHECK(static_cast<std::int64_t>(values.size()) == rows * cols);
  return {storage, rows, cols};
}

}  // namespace lily
