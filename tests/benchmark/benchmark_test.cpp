// What `lily bench` computes: other engines' output as they print it, costs against what is known of the demo model,
// and charts that are well-formed.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "benchmark/ablation.h"
#include "benchmark/chart.h"
#include "benchmark/costs.h"
#include "benchmark/machine.h"
#include "benchmark/peer.h"
#include "benchmark/shell.h"
#include "benchmark/speed.h"
#include "benchmark/trace.h"
#include "support/error.h"

namespace lily {
namespace {

TEST(Peer, ReadsLlamaBench) {
  const PeerSpeed speed = parse_peer_output(R"([
    {"build_commit": "x", "n_prompt": 512, "n_gen": 0, "n_depth": 0, "avg_ns": 1, "avg_ts": 62.7, "stddev_ts": 0.5},
    {"build_commit": "x", "n_prompt": 0, "n_gen": 64, "n_depth": 512, "avg_ns": 1, "avg_ts": 1.59e1}
  ])");
  EXPECT_EQ(speed.prefill, 62.7);
  EXPECT_EQ(speed.decode, 15.9);
}

TEST(Peer, ReadsMlxLm) {
  const PeerSpeed speed = parse_peer_output(
      "==========\nPrompt: 512 tokens, 4738.125 tokens-per-sec\nGeneration: 64 tokens, 141.250 tokens-per-sec\n");
  EXPECT_EQ(speed.prefill, 4738.125);
  EXPECT_EQ(speed.decode, 141.25);
}

TEST(Peer, RunsACommandWithTheLengthsPutIn) {
  const auto run_peer = [](const std::string& command, std::int64_t length, std::int64_t tokens) {
    return lily::run_peer(command, length, tokens, std::chrono::seconds(0));
  };
  const PeerSpeed speed = run_peer("printf '\"n_gen\": 0, \"avg_ts\": %d.5' {length}", 256, 16);
  EXPECT_EQ(speed.prefill, 256.5);
  EXPECT_FALSE(speed.decode);
  EXPECT_THROW(run_peer("echo nothing", 1, 1), Error);
  EXPECT_THROW(run_peer("exit 3", 1, 1), Error);
  for (const char* wrong : {"-5", "0", "1e999"}) {
    EXPECT_THROW(run_peer(fmt::format("echo '\"n_gen\": 0, \"avg_ts\": {}'", wrong), 1, 1), Error) << wrong;
  }
}

TEST(Peer, OneThatHangsIsEndedWithAllItHasStarted) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string file = testing::TempDir() + "lily_peer_process";
  // The second sleep does not end when it is asked to; both hold the pipe.
  const std::string command = "sh -c 'trap \"\" TERM; sleep 100' & sleep 100 & echo $! > " + file + "; wait";
  try {
    run_peer(command, 1, 1, std::chrono::seconds(1));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("still running after 1 s"), std::string::npos) << error.what();
    EXPECT_NE(error.hint().find("--against-limit"), std::string::npos);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  pid_t process = 0;
  std::ifstream(file) >> process;
  ASSERT_GT(process, 0);
  std::remove(file.c_str());
  // Ended, or not yet waited for by its new parent.
  const auto is_running = [process] {
    std::ifstream stat(fmt::format("/proc/{}/stat", process));
    std::string id, name, state;
    stat >> id >> name >> state;
    return ::kill(process, 0) == 0 && state != "Z";
  };
  for (int i = 0; i < 100 && is_running(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(is_running());
}

TEST(Peer, AShellHasNoInputAndItsOwnStatus) {
  const ShellResult result = run_shell("cat; echo out; exit 3", std::chrono::seconds(30));
  EXPECT_EQ(result.output, "out\n");
  EXPECT_EQ(WEXITSTATUS(result.status), 3);
  EXPECT_FALSE(result.ended_late);
  const ShellResult long_one = run_shell("seq 1 100000", std::chrono::seconds(0));
  EXPECT_EQ(long_one.output.size(), 588895U);
  // The shell closes its output before it ends.
  EXPECT_EQ(run_shell("exec >&-; sleep 0.2; exit 4", std::chrono::seconds(30)).status, 4 << 8);
}

TEST(Peer, OfALongOutputBothEndsAreKept) {
  const ShellResult result = run_shell("echo first; yes | head -c 50000000; echo last", std::chrono::seconds(60));
  EXPECT_EQ(result.output.size(), 2 * kShellOutputEnd + 1);
  EXPECT_TRUE(result.output.starts_with("first\ny\ny\n"));
  EXPECT_TRUE(result.output.ends_with("\ny\ny\nlast\n"));
  // Twice a mebibyte is whole.
  const std::string two = run_shell("seq 1 300000 | head -c 2097152", std::chrono::seconds(60)).output;
  EXPECT_EQ(two, run_shell("seq 1 300000", std::chrono::seconds(60)).output.substr(0, 2 * kShellOutputEnd));
  const std::string figures =
      "echo '\"n_gen\": 0, \"avg_ts\": 5'; yes | head -c 9000000; echo '\"n_gen\": 4, \"avg_ts\": 6'";
  const PeerSpeed speed = run_peer(figures, 1, 1, std::chrono::seconds(60));
  EXPECT_EQ(speed.prefill, 5);
  EXPECT_EQ(speed.decode, 6);
}

TEST(Peer, ReadsEndlessNumbers) {
  for (const char* begin : {"\"n_gen\": ", "\"n_gen\"", "Prompt: ", "Prompt: 5 tokens, "}) {
    for (const char digit : {'1', ' '}) parse_peer_output(begin + std::string(1 << 21, digit));
  }
}

// A process that is ended by a signal takes the command with it; one that ignores the signal does not.
TEST(Peer, ASignalEndsTheCommandFirst) {
  EXPECT_EXIT(run_shell(fmt::format("(trap 'echo bye >&2; exit' TERM; kill -INT {}; sleep 100 & wait)", ::getpid()),
                        std::chrono::seconds(60)),
              testing::KilledBySignal(SIGINT), "");
}

// One that does not want to end is killed after a moment, or at once by a second signal.
TEST(Peer, ASignalEndsACommandThatIgnoresIt) {
  const std::string pid_file = testing::TempDir() + "lily_stubborn_process";
  for (const bool twice : {false, true}) {
    const std::string again = twice ? "sleep 0.3; kill -INT $PPID; " : "";
    const std::string command =
        fmt::format("trap '' TERM; (echo $$ > {}; kill -INT $PPID; {}sleep 100)", pid_file, again);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EXIT(run_shell(command, std::chrono::seconds(60)), testing::KilledBySignal(SIGINT), "");
    const auto passed = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(passed, std::chrono::seconds(20));
    pid_t process = 0;
    std::ifstream(pid_file) >> process;
    ASSERT_GT(process, 0);
    EXPECT_NE(::kill(process, 0), 0) << "the shell lives on";
    std::remove(pid_file.c_str());
  }
}

TEST(Speed, SpreadIsOfTheMiddle) {
  EXPECT_EQ(spread_of({3, 1, 2}).median, 2);
  EXPECT_EQ(spread_of({4, 1, 2, 3}).median, 2.5);
  EXPECT_EQ(spread_of({4, 1, 2}).least, 1);
  EXPECT_EQ(spread_of({4, 1, 2}).most, 4);
}

TEST(Speed, ARoundCountsItsTokensAndChunks) {
  LoadedModel model({.device = "cpu"});
  SamplingParams greedy;
  greedy.temperature = 0;
  SpeedTest test(model, {.length = 40, .tokens = 5, .sampling = greedy, .chunk = 16});
  for (int round = 0; round < 2; ++round) {
    const Speed speed = test.round();
    EXPECT_EQ(speed.tokens, 5);
    EXPECT_EQ(speed.chunks, 3);
    EXPECT_GT(speed.prefill_seconds, 0);
    EXPECT_GE(speed.first_token_seconds, speed.prefill_seconds);
    EXPECT_GT(speed.decode_seconds, 0);
  }
}

// The demo model's sizes from its config: 8 layers, of which 2 have attention; 4.5 bits a weight, gates 8.5.
TEST(Costs, FollowTheConfig) {
  const Checkpoint checkpoint = Checkpoint::open(resolve_model("demo"));
  const ModelConfig& c = checkpoint.config();
  const auto expected = static_cast<double>(active_matrix_bytes(c));
  EXPECT_EQ(active_matrix_bytes(c) % 4, 0U);
  const auto found = static_cast<double>(active_weight_bytes(checkpoint));
  EXPECT_GE(found, expected);  // norms, conv and the delta rule's vectors come on top
  EXPECT_LT(found, expected * 1.02);
  EXPECT_EQ(decode_bytes(checkpoint, 100, 2) - decode_bytes(checkpoint, 0, 2),
            static_cast<std::uint64_t>(100 * c.num_attention_layers() * 2 * c.kv_rows() * 2));
  EXPECT_GT(prefill_operations(c, 4096), prefill_operations(c, 16));
}

// 4-bit matrices of 2.9 billion active weights, most of them experts, and the 0.51 billion of the head.
TEST(Trace, ATokenOfTheFullShapeTakesFewLaunchesAndNoByteTwice) {
  const FullShapeTrace trace = trace_full_shape();
  EXPECT_NEAR(static_cast<double>(trace.least_weight_bytes), 1.667e9, 0.01e9);
  EXPECT_GT(trace.chunk_rows, 1);
  ASSERT_EQ(trace.paths.size(), 3U);
  for (const LaunchCount& path : trace.paths) {
    SCOPED_TRACE(path.path);
    EXPECT_GT(path.decode.dispatches, 40U);
    EXPECT_LE(path.decode.dispatches, 270U);
    EXPECT_LE(path.decode.stages, 265U);
    EXPECT_NEAR(static_cast<double>(path.decode.weight_bytes), static_cast<double>(trace.least_weight_bytes),
                0.02 * static_cast<double>(trace.least_weight_bytes));
    EXPECT_GT(path.prefill.dispatches, path.decode.dispatches);
    EXPECT_GT(path.prefill.weight_bytes, 18'000'000'000U);  // every expert is needed
  }
  // The same kernels, compiled in two ways.
  EXPECT_EQ(trace.paths[0].decode, trace.paths[1].decode);
  EXPECT_EQ(trace.paths[0].prefill, trace.paths[1].prefill);
}

// What a device counts while it works is what was counted without it, in chunks and with the cache's growth behind it.
TEST(Trace, ADeviceThatRunsCountsTheSame) {
  LoadedModel model({.device = "emulated"});
  SamplingParams greedy;
  greedy.temperature = 0;
  SpeedTest test(model, {.length = 3, .tokens = 2, .sampling = greedy, .chunk = 2});
  const Speed speed = test.round();
  const LaunchCount count = count_launches(model.config(), path_of(model.gpu()->info()), 3, 2, speed.tokens - 1);
  EXPECT_EQ(speed.prefill, count.prefill);
  EXPECT_EQ(speed.decode, count.decode);
  EXPECT_STREQ(count.path, "simdgroup matrices");
}

TEST(Trace, EveryGpuHasItsPath) {
  EXPECT_EQ(path_of({.kind = DeviceKind::kCuda}), LaunchPath::kCudaTensorCores);
  EXPECT_EQ(path_of({.kind = DeviceKind::kMetal}), LaunchPath::kSimdgroupMatrices);
  EXPECT_EQ(path_of({.kind = DeviceKind::kMetal, .tensor_ops = true}), LaunchPath::kTensorOperations);
}

/// Each look at it is a second later than the last.
double seconds_by_looks() {
  static double seconds = 0;
  return seconds++;
}

TEST(Machine, RatesAreOfTheClockThatIsGiven) {
  EXPECT_EQ(measured_read_bandwidth(1, seconds_by_looks), 1 << 29);  // the bytes of a pass
  const auto rate = measured_dot_rate(1, seconds_by_looks);
  EXPECT_EQ(rate, measured_dot_rate(1, seconds_by_looks));
  EXPECT_EQ(rate.has_value(), measured_dot_rate(1).has_value());
}

TEST(Speed, AModelTakesTheDeviceThatIsOpen) {
  auto device = make_device(DeviceKind::kEmulated);
  const Device* open = device.get();
  const LoadedModel model({.device = "emulated"}, std::move(device));
  EXPECT_EQ(model.gpu(), open);
}

TEST(Machine, BandwidthAndMatrixRateAreMeasured) {
  EXPECT_GT(measured_read_bandwidth(1), 1e8);
  EXPECT_GT(measured_dot_rate(1).value_or(1e10), 1e9);
  const auto device = make_device(DeviceKind::kEmulated);
  EXPECT_GT(measured_matrix_rate(*device), 0);
}

// Each switch is one that changes the engine, and says what it is.
TEST(Ablation, EveryOptimisationCanBeLeftOut) {
  for (const Ablation& ablation : gpu_ablations()) {
    GpuOptions with;
    if (ablation.both) ablation.both(with);
    GpuOptions without = with;
    ablation.turn_off(without);
    EXPECT_TRUE(!(with == without) || !ablation.overlap || ablation.chunk_off > 0) << ablation.name;
    EXPECT_FALSE(ablation.lengths.empty()) << ablation.name;
  }
}

TEST(Chart, IsADocumentWithEveryPoint) {
  const std::string svg = svg_of({.title = "a < b & c",
                                  .x_label = "x",
                                  .y_label = "y",
                                  .series = {{.name = "one", .points = {{256, 10}, {512, 20}, {131072, 5}}},
                                             {.name = "two", .points = {{512, 7}}}}});
  std::size_t circles = 0;
  for (std::size_t at = 0; (at = svg.find("<circle", at)) != std::string::npos; ++at) ++circles;
  EXPECT_EQ(circles, 4U);
  EXPECT_NE(svg.find("a &lt; b &amp; c"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg_of({}).find("nan"), std::string::npos);
}

}  // namespace
}  // namespace lily
