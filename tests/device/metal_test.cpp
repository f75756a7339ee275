// The Metal device on the software Metal: what it does when the machine is other than expected, and that the software
// Metal stops wrong uses of Metal.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "device/metal/metal_cpp.h"
#include "device/metal/metal_device.h"
#include "device/soft_metal/soft_metal.h"
#include "device/test_device.h"
#include "device/test_kernels.h"

namespace lily {
namespace {

bool mentions(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

class MetalTest : public testing::Test {
 protected:
  void SetUp() override {
    soft_metal::machine() = {};
    soft_metal::take_compilations();
  }
  void TearDown() override {
    soft_metal::machine() = {};
    EXPECT_EQ(soft_metal::leaks(), "");
  }
  static std::unique_ptr<Buffer> filled(Device& device, float value) {
    auto buffer = device.allocate(64 * sizeof(float), Memory::kShared);
    std::ranges::fill(buffer->host_as<float>(), value);
    return buffer;
  }
  static void scale_add(Device& device, View<const float> x, const Buffer& y) {
    device.dispatch(kernels::scale_add_64, {}, x, y.view<float>(), Scaling{2, 64});
  }
  /// Runs a kernel that has a body for tensor operations, and one that has none.
  static soft_metal::Compilations compile_both(Device& device) {
    const auto x = filled(device, 1), y = filled(device, 1);
    scale_add(device, x->view<float>(), *y);
    const auto a = device.allocate(32 * 64 * 2), b = device.allocate(64 * 64 * 2), c = device.allocate(32 * 64 * 4);
    device.dispatch(kernels::product_64, {}, a->view<bfloat>(), b->view<bfloat>(), c->view<float>());
    device.wait(device.submit());
    return soft_metal::take_compilations();
  }
  static std::string failure_of(const std::function<void()>& body) {
    try {
      body();
    } catch (const Error& error) {
      return error.what() + (" | " + error.hint());
    }
    return "";
  }
};

TEST_F(MetalTest, CompilesAFileOnce) {
  const auto device = make_test_device("metal");
  EXPECT_EQ(compile_both(*device).metal_3, 2);
  EXPECT_EQ(compile_both(*device).metal_3, 0);
}

TEST_F(MetalTest, UsesTensorOperationsOnTheM5) {
  soft_metal::machine().architecture = "applegpu_g17s";
  const auto device = make_test_device("metal");
  EXPECT_TRUE(device->info().tensor_ops);
  EXPECT_EQ(soft_metal::take_compilations().metal_4, 1);  // the probe
  const auto compiled = compile_both(*device);
  EXPECT_EQ(compiled.metal_4, 1);
  EXPECT_EQ(compiled.metal_3, 1);
}

TEST_F(MetalTest, KnowsWhoHasTensorOperations) {
  const auto has = [](const char* architecture, long major, long minor) {
    soft_metal::machine().architecture = architecture;
    soft_metal::machine().macos[0] = major;
    soft_metal::machine().macos[1] = minor;
    return make_test_device("metal")->info().tensor_ops;
  };
  EXPECT_FALSE(has("applegpu_g16s", 26, 4));
  EXPECT_TRUE(has("applegpu_g17d", 26, 2));
  EXPECT_FALSE(has("applegpu_g17d", 26, 1));
  EXPECT_FALSE(has("applegpu_g17p", 26, 4));
  EXPECT_TRUE(has("applegpu_g18p", 27, 0));
  EXPECT_FALSE(has("something", 27, 0));
}

TEST_F(MetalTest, FallsBackWhenMetal4DoesNotCompile) {
  soft_metal::machine().architecture = "applegpu_g17s";
  soft_metal::machine().metal_4_compiles = false;
  const auto device = make_test_device("metal");
  soft_metal::take_compilations();
  const auto compiled = compile_both(*device);
  EXPECT_EQ(compiled.metal_4, 1);
  EXPECT_EQ(compiled.metal_3, 2);
}

TEST_F(MetalTest, FallsBackWhenTensorOperationsAreWrong) {
  soft_metal::machine().architecture = "applegpu_g17s";
  soft_metal::machine().tensor_ops_lie = true;
  const auto device = make_test_device("metal");
  EXPECT_FALSE(device->info().tensor_ops);
  soft_metal::take_compilations();
  EXPECT_EQ(compile_both(*device).metal_4, 0);
}

TEST_F(MetalTest, SaysWhichFileDoesNotCompile) {
  soft_metal::machine().metal_3_compiles = false;
  const auto device = make_test_device("metal");
  const std::string failure = failure_of([&] { compile_both(*device); });
  EXPECT_TRUE(mentions(failure, "chain.metal does not compile: program_source:1")) << failure;
  EXPECT_TRUE(mentions(failure, "lily selftest")) << failure;
}

TEST_F(MetalTest, SaysWhenAKernelNeedsMoreThreadsThanThereAre) {
  soft_metal::machine().max_threads = 32;
  const auto device = make_test_device("metal");
  const std::string failure = failure_of([&] { compile_both(*device); });
  EXPECT_TRUE(mentions(failure, "'scale_add_64' needs 64 threads")) << failure;
}

TEST_F(MetalTest, SurfacesAFailureOfTheGpuAndGoesOn) {
  const auto device = make_test_device("metal");
  const auto x = filled(*device, 1), y = filled(*device, 1);
  soft_metal::machine().fail_command_buffer = MTL::CommandBufferErrorOutOfMemory;
  scale_add(*device, x->view<float>(), *y);
  const auto ticket = device->submit();
  const std::string failure = failure_of([&] { device->wait(ticket); });
  EXPECT_TRUE(mentions(failure, "software failure")) << failure;
  EXPECT_TRUE(mentions(failure, "shorter context")) << failure;
  scale_add(*device, x->view<float>(), *y);
  device->wait(device->submit());
  EXPECT_EQ(y->host_as<float>()[63], 3);
}

TEST_F(MetalTest, ForecastsMemory) {
  soft_metal::machine().recommended_working_set = 1 << 20;
  const auto device = make_test_device("metal");
  const auto half = device->allocate(1 << 19);
  const std::string failure = failure_of([&] { device->allocate((1 << 19) + 1); });
  EXPECT_TRUE(mentions(failure, "does not fit")) << failure;
  std::vector<std::byte> weights(2 << 20);
  EXPECT_NE(failure_of([&] { device->map(weights, 1); }), "");
}

TEST_F(MetalTest, RefusesOneBufferThatIsTooLong) {
  soft_metal::machine().max_buffer_length = 1 << 20;
  const auto device = make_test_device("metal");
  EXPECT_TRUE(mentions(failure_of([&] { device->allocate(2 << 20); }), "more than this GPU takes"));
}

TEST_F(MetalTest, MapsPagesInPlace) {
  const auto device = make_test_device("metal");
  constexpr std::size_t kSize = 1 << 16;
  auto* pages = static_cast<float*>(mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  const std::span<float> weights(pages + 5000, 64);
  {
    const auto x = device->map(std::as_bytes(weights)), y = filled(*device, 1);
    std::ranges::fill(weights, 4.F);  // after the mapping: the GPU sees the same memory
    scale_add(*device, x->view<float>(), *y);
    device->wait(device->submit());
    EXPECT_EQ(y->host_as<float>()[63], 9);
  }
  munmap(pages, kSize);
}

TEST_F(MetalTest, CopiesWhatIsMisaligned) {
  const auto device = make_test_device("metal");
  std::vector<std::byte> bytes(64 * sizeof(float) + 16);
  const std::vector<float> values(64, 4.F);
  std::memcpy(bytes.data() + 2, values.data(), 256);
  const auto x = device->map(std::span(bytes).subspan(2, 256)), y = filled(*device, 1);
  scale_add(*device, x->view<float>(), *y);
  device->wait(device->submit());
  EXPECT_EQ(y->host_as<float>()[63], 9);
}

TEST_F(MetalTest, RefusesOtherMachines) {
  soft_metal::machine().unified_memory = false;
  EXPECT_TRUE(mentions(failure_of([] { make_test_device("metal"); }), "not an Apple GPU"));
  soft_metal::machine().unified_memory = true;
  soft_metal::machine().macos[0] = 14;
  EXPECT_TRUE(mentions(failure_of([] { make_test_device("metal"); }), "macOS 15"));
}

TEST_F(MetalTest, RefusesAKernelThatIsNotThere) {
  const auto device = make_metal_device({.sources = {}});
  EXPECT_TRUE(mentions(failure_of([&] { compile_both(*device); }), "not in this build"));
}

// ---- the software Metal itself ----

class SoftMetalDeathTest : public MetalTest {
 protected:
  struct Wrong {
    bool no_pipeline = false, unbound = false, misaligned = false, past_end = false, bytes_for_buffer = false;
    bool short_value = false, empty_grid = false, too_wide = false, open_encoder = false, twice = false;
    bool freed = false, not_resident = false, unknown = false, ended_twice = false;
  };
  /// scale_add_64 by hand, with one thing wrong.
  static void run(const Wrong& wrong) {
    const metal::AutoreleasePool pool;
    soft_metal::add_entries(kernels::test_entries);
    NS::Error* error = nullptr;
    const auto device = NS::TransferPtr(MTL::CreateSystemDefaultDevice());
    const auto queue = NS::TransferPtr(device->newCommandQueue());
    const auto options = NS::TransferPtr(MTL::CompileOptions::alloc()->init());
    options->setMathMode(MTL::MathModeSafe);
    const auto library =
        NS::TransferPtr(device->newLibrary(metal::to_ns("ENTRY(scale_add_64, 64, x)"), options.get(), &error));
    const auto function = NS::TransferPtr(library->newFunction(metal::to_ns("scale_add_64")));
    const auto descriptor = NS::TransferPtr(MTL::ComputePipelineDescriptor::alloc()->init());
    descriptor->setComputeFunction(function.get());
    const auto pipeline =
        NS::TransferPtr(device->newComputePipelineState(descriptor.get(), MTL::PipelineOptionNone, nullptr, &error));
    auto buffer = NS::TransferPtr(device->newBuffer(4096, MTL::ResourceHazardTrackingModeUntracked));
    const auto set_descriptor = NS::TransferPtr(MTL::ResidencySetDescriptor::alloc()->init());
    const auto residency = NS::TransferPtr(device->newResidencySet(set_descriptor.get(), &error));
    queue->addResidencySet(residency.get());
    if (!wrong.not_resident) residency->addAllocation(buffer.get());
    residency->commit();

    auto* commands = queue->commandBufferWithUnretainedReferences();
    auto* encoder = commands->computeCommandEncoder(MTL::DispatchTypeConcurrent);
    const Scaling value{1, 64};
    if (!wrong.no_pipeline) encoder->setComputePipelineState(pipeline.get());
    encoder->setBuffer(buffer.get(), wrong.misaligned ? 2 : wrong.past_end ? 5000 : 0, 0);
    if (wrong.bytes_for_buffer) {
      encoder->setBytes(&value, 4, 1);
    } else if (!wrong.unbound) {
      encoder->setBuffer(buffer.get(), 1024, 1);
    }
    encoder->setBytes(&value, wrong.short_value ? 4 : sizeof value, 2);
    encoder->dispatchThreadgroups(MTL::Size(wrong.empty_grid ? 0 : 1, 1, 1),
                                  MTL::Size(wrong.too_wide ? 2048 : 64, 1, 1));
    if (!wrong.open_encoder) encoder->endEncoding();
    if (wrong.ended_twice) encoder->endEncoding();
    if (wrong.unknown) encoder->insertDebugSignpost(metal::to_ns("here"));
    commands->commit();
    if (wrong.twice) commands->commit();
    if (wrong.freed) buffer.reset();
    commands->waitUntilCompleted();
    residency->removeAllocation(buffer.get());
    std::_Exit(0);
  }
  static void expect_stop(const Wrong& wrong, const char* message) {
    EXPECT_EXIT(run(wrong), testing::ExitedWithCode(4), message);
  }
};

TEST_F(SoftMetalDeathTest, StopsWrongUses) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run({}), testing::ExitedWithCode(0), "");
  expect_stop({.no_pipeline = true}, "without a pipeline");
  expect_stop({.unbound = true}, "argument 1 is not bound");
  expect_stop({.misaligned = true}, "misaligned");
  expect_stop({.past_end = true}, "past the buffer's end");
  expect_stop({.bytes_for_buffer = true}, "bytes where the kernel has a buffer");
  expect_stop({.short_value = true}, "wrong size");
  expect_stop({.empty_grid = true}, "empty grid");
  expect_stop({.too_wide = true}, "too many threads");
  expect_stop({.open_encoder = true}, "before endEncoding");
  expect_stop({.twice = true}, "committed twice");
  expect_stop({.freed = true}, "freed while");
  expect_stop({.not_resident = true}, "not resident");
  expect_stop({.unknown = true}, "is not there");
  expect_stop({.ended_twice = true}, "endEncoding twice");
}

TEST_F(SoftMetalDeathTest, StopsWrongOwnership) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(metal::to_ns("no pool"), testing::ExitedWithCode(4), "no pool in place");
  const auto leak = [] {
    MTL::CreateSystemDefaultDevice();
    std::fputs(soft_metal::leaks().c_str(), stderr);
    std::_Exit(1);
  };
  EXPECT_EXIT(leak(), testing::ExitedWithCode(1), "1 SoftDevice");
}

}  // namespace
}  // namespace lily
