// Draws a token from adjusted logits, gives it to the next step (tokens) and to the host (shown), and moves the
// timeline on by one.
//
// One threadgroup. Greedy looks at the maxima of groups, then into one group. Top-k up to 32 (with top-p and min-p)
// finds the k-th largest group maximum by radix: every one of the k best logits reaches it. Anything else takes the way
// through the whole vocabulary, cut by bisection over the logits' bits: exact, but slower.
#include "select.h"

constant constexpr uint kFastTopK = 32;
constant constexpr uint kListed = 32 * kFastTopK;

template <int THREADS>
struct SelectMemory {
  atomic_uint bins[256];
  uint list_key[kListed], list_id[kListed];
  uint best_key[kFastTopK], best_id[kFastTopK];
  float sums[THREADS / 32];
  uint counts[THREADS / 32];
  uint prefix, remaining;
  uint token;
};

struct SelectThread {
  uint tid;
  uint sg;
  uint lane;
};

// ---- over all threads of the threadgroup ----

template <int THREADS>
METAL_FUNC uint count_all(uint mine, threadgroup SelectMemory<THREADS>& mem, SelectThread me) {
  threadgroup_barrier(mem_flags::mem_threadgroup);
  mine = simd_sum(mine);
  if (me.lane == 0) mem.counts[me.sg] = mine;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return simd_sum(me.lane < THREADS / 32 ? mem.counts[me.lane] : 0u);
}
template <int THREADS>
METAL_FUNC float sum_all(float mine, threadgroup SelectMemory<THREADS>& mem, SelectThread me) {
  threadgroup_barrier(mem_flags::mem_threadgroup);
  mine = simd_sum(mine);
  if (me.lane == 0) mem.sums[me.sg] = mine;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return simd_sum(me.lane < THREADS / 32 ? mem.sums[me.lane] : 0.f);
}
template <int THREADS>
METAL_FUNC uint max_all(uint mine, threadgroup SelectMemory<THREADS>& mem, SelectThread me) {
  threadgroup_barrier(mem_flags::mem_threadgroup);
  mine = simd_max(mine);
  if (me.lane == 0) mem.counts[me.sg] = mine;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return simd_max(me.lane < THREADS / 32 ? mem.counts[me.lane] : 0u);
}
// The sum of `mine` over the threads before this one.
template <int THREADS>
METAL_FUNC uint count_before(uint mine, threadgroup SelectMemory<THREADS>& mem, SelectThread me) {
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint in_simd = simd_prefix_exclusive_sum(mine);
  if (me.lane == 31) mem.counts[me.sg] = in_simd + mine;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return in_simd + simd_sum(me.lane < me.sg ? mem.counts[me.lane] : 0u);
}
template <int THREADS>
METAL_FUNC float sum_before(float mine, threadgroup SelectMemory<THREADS>& mem, SelectThread me) {
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float in_simd = simd_prefix_exclusive_sum(mine);
  if (me.lane == 31) mem.sums[me.sg] = in_simd + mine;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return in_simd + simd_sum(me.lane < me.sg ? mem.sums[me.lane] : 0.f);
}

// ---- greedy ----

template <int THREADS>
METAL_FUNC uint largest_logit(device const float* adjusted, device const float* tops, uint rows,
                              threadgroup SelectMemory<THREADS>& mem, SelectThread me) {
  const uint groups = (rows + kSelectGroup - 1) / kSelectGroup;
  uint key = 0, first = 0;
  for (uint i = me.tid; i < groups; i += THREADS) {
    const uint other = ordered_bits(tops[i]);
    if (other > key) {
      key = other;
      first = i;
    }
  }
  const uint best = max_all(key, mem, me);
  const uint group = ~max_all(key == best ? ~first : 0u, mem, me);
  const uint id = group * kSelectGroup + me.lane;
  const bool is_best = id < rows && ordered_bits(adjusted[id]) == best;
  const uint token = simd_min(is_best ? id : kNoToken);
  return best > ordered_bits(kNone) ? token : kNoToken;
}

// ---- top-k up to 32 ----

// The k-th largest of the maxima of groups [first, end) of all threads, as ordered bits; 0 if there are fewer than k.
template <int THREADS>
METAL_FUNC uint kth_top(device const float* tops, uint first, uint end, uint k, threadgroup SelectMemory<THREADS>& mem,
                        SelectThread me) {
  if (me.tid == 0) {
    mem.prefix = 0;
    mem.remaining = k;
  }
  for (uint shift = 24;; shift -= 8) {
    if (me.tid < 256) atomic_store_explicit(&mem.bins[me.tid], 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint prefix = mem.prefix;
    for (uint i = first; i < end; ++i) {
      const uint key = ordered_bits(tops[i]);
      if (shift == 24 || key >> (shift + 8) == prefix)
        atomic_fetch_add_explicit(&mem.bins[key >> shift & 255u], 1u, memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (me.sg == 0) {  // a lane takes 8 bins, from the top down
      uint mine = 0, bin[8];
      for (uint b = 0; b < 8; ++b) {
        bin[b] = atomic_load_explicit(&mem.bins[255 - me.lane * 8 - b], memory_order_relaxed);
        mine += bin[b];
      }
      uint above = simd_prefix_exclusive_sum(mine);
      const uint remaining = mem.remaining;
      const uint total = simd_sum(mine);
      simdgroup_barrier(mem_flags::mem_threadgroup);
      if (above < remaining && remaining <= above + mine) {
        uint b = 0;
        while (above + bin[b] < remaining) above += bin[b++];
        mem.prefix = prefix << 8 | (255 - me.lane * 8 - b);
        mem.remaining = remaining - above;
      } else if (total < remaining && me.lane == 0) {
        mem.prefix = prefix << 8;
        mem.remaining = total;
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (shift == 0) break;
  }
  return mem.prefix;
}

// Fills best_key and best_id with the k best, in order; returns how many there are.
template <int THREADS>
METAL_FUNC uint list_best(device const float* adjusted, device const float* tops, uint rows, uint k,
                          threadgroup SelectMemory<THREADS>& mem, SelectThread me) {
  const uint groups = (rows + kSelectGroup - 1) / kSelectGroup, each = (groups + THREADS - 1) / THREADS;
  const uint first = min(me.tid * each, groups), end = min(first + each, groups);
  const uint none = ordered_bits(kNone);
  const uint cut = max(groups < k ? 0u : kth_top(tops, first, end, k, mem, me), none + 1);
  uint above = 0, equal = 0;
  for (uint g = first; g < end; ++g) {
    if (ordered_bits(tops[g]) < cut) continue;
    for (uint id = g * kSelectGroup; id < min((g + 1) * kSelectGroup, rows); ++id) {
      const uint key = ordered_bits(adjusted[id]);
      above += key > cut ? 1u : 0u;
      equal += key == cut ? 1u : 0u;
    }
  }
  // Those above the cut are in fewer than k groups; of those equal to it the first k are enough.
  uint above_place = count_before(above, mem, me), equal_place = count_before(equal, mem, me);
  const uint all_above = count_all(above, mem, me), all_equal = min(count_all(equal, mem, me), k);
  const uint listed = min(all_above + all_equal, kListed);
  for (uint g = first; g < end; ++g) {
    if (ordered_bits(tops[g]) < cut) continue;
    for (uint id = g * kSelectGroup; id < min((g + 1) * kSelectGroup, rows); ++id) {
      const uint key = ordered_bits(adjusted[id]);
      if (key < cut) continue;
      const uint place = key > cut ? above_place++ : all_above + equal_place++;
      if (place < listed) {
        mem.list_key[place] = key;
        mem.list_id[place] = id;
      }
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = me.tid; i < listed; i += THREADS) {
    const uint key = mem.list_key[i], id = mem.list_id[i];
    uint rank = 0;
    for (uint j = 0; j < listed; ++j) {
      const uint other = mem.list_key[j];
      rank += other > key || (other == key && mem.list_id[j] < id) ? 1u : 0u;
    }
    if (rank < k) {
      mem.best_key[rank] = key;
      mem.best_id[rank] = id;
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return min(listed, k);
}

// One simdgroup; a lane has one of the best.
template <int THREADS>
METAL_FUNC uint draw_from_best(uint count, float u, device const SelectParams* p,
                               threadgroup SelectMemory<THREADS>& mem, uint lane) {
  const bool there = lane < count;
  const float top = from_ordered_bits(mem.best_key[0]);
  const uint id = there ? mem.best_id[lane] : kNoToken;
  float weight = there ? exp((from_ordered_bits(mem.best_key[lane]) - top) / p->temperature) : 0.f;
  const float before = simd_prefix_exclusive_sum(weight), total = simd_sum(weight);
  if (lane > 0 && before >= p->top_p * total) weight = 0.f;
  if (weight < p->min_p) weight = 0.f;
  float running = 0.f;
  for (uint i = 0; i < 32; ++i) {
    const float other = simd_shuffle(weight, ushort(i));
    running += simd_shuffle(id, ushort(i)) <= id ? other : 0.f;
  }
  const float target = u * simd_sum(weight);
  const uint drawn = simd_min(weight > 0.f && running > target ? id : kNoToken);
  return drawn != kNoToken ? drawn : simd_max(weight > 0.f ? id : 0u);  // the sum was rounded below the total
}

// ---- any other filter ----

// What stays: keys above `key`, and the first `equals` ids of those equal to it.
struct Cut {
  uint key;
  uint equals;
};

template <int THREADS>
METAL_FUNC float mass_from(device const float* adjusted, uint rows, uint key, float top, float temperature,
                           threadgroup SelectMemory<THREADS>& mem, SelectThread me) {
  float mine = 0.f;
  for (uint i = me.tid; i < rows; i += THREADS)
    mine += ordered_bits(adjusted[i]) >= key ? exp((adjusted[i] - top) / temperature) : 0.f;
  return sum_all(mine, mem, me);
}
template <int THREADS>
METAL_FUNC uint number_from(device const float* adjusted, uint rows, uint key, threadgroup SelectMemory<THREADS>& mem,
                            SelectThread me) {
  uint mine = 0;
  for (uint i = me.tid; i < rows; i += THREADS) mine += ordered_bits(adjusted[i]) >= key ? 1u : 0u;
  return count_all(mine, mem, me);
}

template <int THREADS>
METAL_FUNC Cut general_cut(device const float* adjusted, uint rows, float top, device const SelectParams* p,
                           threadgroup SelectMemory<THREADS>& mem, SelectThread me) {
  const uint none = ordered_bits(kNone);
  Cut cut;
  cut.key = none;
  cut.equals = 0;
  if (p->top_k > 0 && number_from(adjusted, rows, none + 1, mem, me) > p->top_k) {
    uint key = 0;
    for (uint bit = 0x80000000u; bit != 0; bit /= 2)
      if (number_from(adjusted, rows, key | bit, mem, me) >= p->top_k) key |= bit;
    cut.key = key;
    cut.equals = p->top_k - number_from(adjusted, rows, cut.key + 1, mem, me);
  }
  if (p->top_p < 1.f) {
    const float above = mass_from(adjusted, rows, cut.key + 1, top, p->temperature, mem, me);
    const float weight = exp((from_ordered_bits(cut.key) - top) / p->temperature);
    const float target = p->top_p * (above + (cut.equals > 0 ? weight * float(cut.equals) : 0.f));
    if (above >= target) {
      uint key = 0;
      for (uint bit = 0x80000000u; bit != 0; bit /= 2)
        if (mass_from(adjusted, rows, key | bit, top, p->temperature, mem, me) >= target) key |= bit;
      cut.key = max(key, none + 1);
      cut.equals = kNoToken;
    }
    const float before = mass_from(adjusted, rows, cut.key + 1, top, p->temperature, mem, me);
    const float one = exp((from_ordered_bits(cut.key) - top) / p->temperature);
    const float needed = one > 0.f ? clamp((target - before) / one, 1.f, 1e9f) : 1.f;
    const uint whole = uint(needed);
    cut.equals = min(cut.equals, float(whole) < needed ? whole + 1 : whole);
  }
  return cut;
}

template <int THREADS>
METAL_FUNC uint draw_from_all(device const float* adjusted, uint rows, float top, float u, device const SelectParams* p,
                              threadgroup SelectMemory<THREADS>& mem, SelectThread me) {
  const Cut cut = general_cut(adjusted, rows, top, p, mem, me);
  const uint each = (rows + THREADS - 1) / THREADS, first = min(me.tid * each, rows), end = min(first + each, rows);
  uint equal = 0;
  for (uint i = first; i < end; ++i) equal += ordered_bits(adjusted[i]) == cut.key ? 1u : 0u;
  const uint equal_before = count_before(equal, mem, me);
  float sum = 0.f, before = 0.f, target = 0.f;
  uint drawn = kNoToken, last = 0;
  for (int pass = 0; pass < 2;
       ++pass) {  // the sum of the thread's ids, then the id at which the running sum gets there
    float running = before;
    uint seen = equal_before;
    for (uint i = first; i < end; ++i) {
      const uint key = ordered_bits(adjusted[i]);
      const bool kept = key > cut.key || (key == cut.key && seen < cut.equals);
      seen += key == cut.key ? 1u : 0u;
      const float weight = kept ? exp((adjusted[i] - top) / p->temperature) : 0.f;
      if (weight <= 0.f || weight < p->min_p) continue;
      running += weight;
      last = i;
      if (pass == 1 && drawn == kNoToken && running > target) drawn = i;
    }
    if (pass == 0) {
      sum = running;
      before = sum_before(sum, mem, me);
      target = u * sum_all(sum, mem, me);
    }
  }
  const uint found = ~max_all(~drawn, mem, me);
  return found != kNoToken ? found : max_all(last, mem, me);
}

template <int THREADS>
kernel void draw_token(device const float* adjusted [[buffer(0)]], device const float* tops [[buffer(1)]],
                       device const SelectParams* p [[buffer(2)]], device const float* uniforms [[buffer(3)]],
                       device uint* counts [[buffer(4)]], device uint* tokens [[buffer(5)]],
                       device uint* shown [[buffer(6)]], device StepState* step [[buffer(7)]],
                       constant uint& rows [[buffer(8)]], uint tid [[thread_index_in_threadgroup]],
                       uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  using Memory = SelectMemory<THREADS>;
  SHARED(Memory, mem);
  SelectThread me;
  me.tid = tid;
  me.sg = sg;
  me.lane = lane;
  const float u = uniforms[(step->drawn + 1) % kTokenSlots];  // from the host's memory: asked for early
  wait_for_inputs();
  uint token = kNoToken;
  if (p->temperature <= 0.f) {
    token = largest_logit(adjusted, tops, rows, mem, me);
  } else if (p->top_k > 0 && p->top_k <= kFastTopK) {
    const uint count = list_best(adjusted, tops, rows, p->top_k, mem, me);
    if (sg == 0 && count > 0) token = draw_from_best(count, u, p, mem, lane);
  } else {
    const uint best = largest_logit(adjusted, tops, rows, mem, me);
    if (best != kNoToken) token = draw_from_all(adjusted, rows, adjusted[best], u, p, mem, me);
  }
  if (tid != 0 || step->stopped != 0) return;
  const uint drawn = step->drawn + 1;
  tokens[drawn % kTokenSlots] = token;
  shown[drawn % kTokenSlots] = token;
  step->drawn = drawn;
  step->position += 1;
  if (token == kNoToken) {
    step->stopped = 1;
    return;
  }
  counts[token] += 1;
  for (uint i = 0; i < p->stops; ++i)
    if (p->stop[i] == token) step->stopped = 1;
}
ENTRY_PREFETCH(select_token, 1024, draw_token<1024>)
