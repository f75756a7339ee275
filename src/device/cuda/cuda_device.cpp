#include "device/cuda/cuda_device.h"

#include <array>
#include <cstring>
#include <unordered_map>

#include "device/cuda/driver.h"

namespace lily {
namespace {

using cuda::check;
using cuda::driver;
using cuda::Owned;

constexpr std::size_t kSlot = 16;                    // of an argument in the kernel's parameter (shim/cuda)
constexpr std::size_t kMemoryForOthers = 512 << 20;  // the driver's own, and what grows beside the budget
constexpr int kLowestDependentLaunch = 90;           // griddepcontrol is in the kernels from sm_90 on

int attribute(CUdevice_attribute which, CUdevice device) {
  int value = 0;
  check(driver().cuDeviceGetAttribute(&value, which, device), "a property of the GPU");
  return value;
}

CUdevice first_device() {
  int count = 0;
  check(driver().cuDeviceGetCount(&count), "the number of GPUs");
  if (count == 0) throw Error("CUDA: no GPU", "nvidia-smi must list one; use --device cpu");
  CUdevice device = 0;
  check(driver().cuDeviceGet(&device, 0), "the first GPU");
  const int found = 10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) +
                    attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  if (found < LILY_CUDA_LOWEST) {
    throw Error(fmt::format("CUDA: the GPU has compute capability {}.{}, this lily was built for {}.{} and later",
                            found / 10, found % 10, LILY_CUDA_LOWEST / 10, LILY_CUDA_LOWEST % 10),
                "build with -DLILY_CUDA_ARCHITECTURES=80-virtual (8.0 is the least), or use --device cpu");
  }
  return device;
}

/// The device's primary context, made current on the thread that uses it.
class Context {
 public:
  explicit Context(CUdevice device) : device_(device) {
    check(driver().cuDevicePrimaryCtxRetain(&context_, device), "the GPU's context");
    use();
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { driver().cuDevicePrimaryCtxRelease(device_); }
  void use() const { check(driver().cuCtxSetCurrent(context_), "the GPU's context"); }
  CUdevice device() const { return device_; }

 private:
  CUdevice device_;
  CUcontext context_ = nullptr;
};

class CudaBuffer : public Buffer {
 public:
  CudaBuffer(std::shared_ptr<const Context> context, std::size_t size, std::shared_ptr<void> reservation)
      : Buffer(size, nullptr), context_(std::move(context)), reservation_(std::move(reservation)) {
    check(driver().cuMemAlloc(&address_, size), fmt::format("{} bytes of memory", size));
  }
  CudaBuffer(std::shared_ptr<const Context> context, std::span<std::byte> pinned)
      : Buffer(pinned.size(), pinned.data()),
        context_(std::move(context)),
        address_(reinterpret_cast<CUdeviceptr>(pinned.data())) {}
  ~CudaBuffer() override {
    context_->use();
    if (host().empty()) {
      driver().cuMemFree(address_);
    } else {
      driver().cuMemFreeHost(host().data());
    }
  }
  CUdeviceptr address() const { return address_; }

 private:
  std::shared_ptr<const Context> context_;
  std::shared_ptr<void> reservation_;
  CUdeviceptr address_ = 0;
};

CUdeviceptr address_of(const Buffer& buffer) {
  return static_cast<const CudaBuffer&>(buffer).address();
}

class CudaStep : public Step {
 public:
  CudaStep(CommandList commands, Owned<CUgraphExec> graph) : Step(std::move(commands)), graph_(std::move(graph)) {}
  CUgraphExec graph() const { return graph_.get(); }

 private:
  Owned<CUgraphExec> graph_;
};

class CudaDevice : public Device {
 public:
  explicit CudaDevice(std::span<const EmbeddedFile> images) : context_(std::make_shared<Context>(first_device())) {
    describe();
    for (const EmbeddedFile& image : images) {
      CUmodule module = nullptr;
      check(driver().cuModuleLoadData(&module, image.bytes.data()), fmt::format("the kernels of {}", image.name));
      modules_.emplace_back(module, driver().cuModuleUnload);
      enumerate(module);
    }
    CUstream stream = nullptr;
    check(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "a stream");
    stream_.reset(stream);
    for (Owned<CUevent>& done : done_) {
      CUevent event = nullptr;
      check(driver().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "an event");
      done = Owned<CUevent>(event, driver().cuEventDestroy);
    }
  }
  ~CudaDevice() override {
    context_->use();
    driver().cuStreamSynchronize(stream_.get());
  }

  const DeviceInfo& info() const override { return info_; }

 protected:
  std::unique_ptr<Buffer> do_allocate(std::size_t bytes, Memory memory) override {
    context_->use();
    if (memory == Memory::kDevice) {
      auto reservation = reserve(bytes, "memory");
      return std::make_unique<CudaBuffer>(context_, bytes, std::move(reservation));
    }
    void* pinned = nullptr;
    check(driver().cuMemHostAlloc(&pinned, bytes, CU_MEMHOSTALLOC_DEVICEMAP),
          fmt::format("{} bytes of memory that the GPU shares", bytes));
    return std::make_unique<CudaBuffer>(context_, std::span(static_cast<std::byte*>(pinned), bytes));
  }
  std::unique_ptr<Buffer> do_map(std::span<const std::byte> bytes) override {
    auto buffer = do_allocate(bytes.size(), Memory::kDevice);
    do_write(*buffer, 0, bytes);
    return buffer;
  }
  void do_write(Buffer& buffer, std::size_t offset, std::span<const std::byte> bytes) override {
    context_->use();
    check(driver().cuMemcpyHtoD(address_of(buffer) + offset, bytes.data(), bytes.size()), "a copy to the GPU");
    // It returns when the bytes are staged, and stream_ does not wait for the default stream.
    check(driver().cuStreamSynchronize(nullptr), "a copy to the GPU");
  }
  void do_read(const Buffer& buffer, std::size_t offset, std::span<std::byte> out) override {
    context_->use();
    check(driver().cuMemcpyDtoH(out.data(), address_of(buffer) + offset, out.size()), "a copy from the GPU");
  }
  std::unique_ptr<Step> do_record(CommandList commands) override;
  void do_submit(const CommandList& commands, Ticket ticket) override {
    context_->use();
    launch(commands);
    check(driver().cuEventRecord(done(ticket), stream_.get()), "the end of a submission");
  }
  void do_submit(Step& step, Ticket ticket) override {
    context_->use();
    check(driver().cuGraphLaunch(static_cast<CudaStep&>(step).graph(), stream_.get()), "the launch of a step");
    check(driver().cuEventRecord(done(ticket), stream_.get()), "the end of a step");
  }
  void do_wait(Ticket ticket) override {
    context_->use();
    check(driver().cuEventSynchronize(done(ticket)), "a kernel");
  }
  bool do_done(Ticket ticket) override {
    context_->use();
    const CUresult result = driver().cuEventQuery(done(ticket));
    if (result != CUDA_ERROR_NOT_READY) check(result, "a kernel");
    return result == CUDA_SUCCESS;
  }

 private:
  struct Function {
    CUfunction function = nullptr;
    bool dependent_launch = false;
  };

  void describe();
  void enumerate(CUmodule module);
  Function find(const Entry& entry);
  void launch(const CommandList& commands);
  void launch(const CommandList& commands, const CommandList::Dispatch& dispatch);
  // At most two submissions are in flight, so a ticket's event is free again four tickets later.
  CUevent done(Ticket ticket) const { return done_[ticket % done_.size()].get(); }

  std::shared_ptr<Context> context_;
  DeviceInfo info_;
  std::vector<Owned<CUmodule>> modules_;
  std::unordered_map<std::string, CUfunction> by_name_;
  std::unordered_map<const Entry*, Function> functions_;
  Owned<CUstream> stream_{nullptr, driver().cuStreamDestroy};
  std::array<Owned<CUevent>, 4> done_{
      Owned<CUevent>{nullptr, driver().cuEventDestroy}, Owned<CUevent>{nullptr, driver().cuEventDestroy},
      Owned<CUevent>{nullptr, driver().cuEventDestroy}, Owned<CUevent>{nullptr, driver().cuEventDestroy}};
  std::vector<std::byte> parameter_;  // of the launch that is being made
};

void CudaDevice::describe() {
  std::array<char, 256> name{};
  check(driver().cuDeviceGetName(name.data(), name.size(), context_->device()), "the GPU's name");
  std::size_t free = 0;
  std::size_t total = 0;
  check(driver().cuMemGetInfo(&free, &total), "the GPU's memory");
  info_ = {DeviceKind::kCuda, name.data(), free - std::min(free, kMemoryForOthers), false, false};
}

void CudaDevice::enumerate(CUmodule module) {
  unsigned count = 0;
  check(driver().cuModuleGetFunctionCount(&count, module), "the number of kernels");
  std::vector<CUfunction> functions(count);
  check(driver().cuModuleEnumerateFunctions(functions.data(), count, module), "the kernels");
  for (const CUfunction function : functions) {
    const char* name = nullptr;
    check(driver().cuFuncGetName(&name, function), "a kernel's name");
    by_name_[name] = function;
  }
}

CudaDevice::Function CudaDevice::find(const Entry& entry) {
  const auto known = functions_.find(&entry);
  if (known != functions_.end()) return known->second;
  const auto named = by_name_.find(entry.name);
  if (named == by_name_.end()) throw_error("CUDA: kernel '{}' is not in this build", entry.name);
  Function found{named->second, false};
  check(driver().cuFuncLoad(found.function), entry.name);  // now: a graph that is being recorded forbids it
  if (entry.large_memory > 0) {
    check(driver().cuFuncSetAttribute(found.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                      static_cast<int>(entry.large_memory)),
          entry.name);
  }
  // The same split of cache and shared memory for all: a multiprocessor has to run empty before it changes it, and the
  // next launch could not start beside this one.
  check(driver().cuFuncSetAttribute(found.function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                    CU_SHAREDMEM_CARVEOUT_MAX_SHARED),
        entry.name);
  int built_for = 0;
  check(driver().cuFuncGetAttribute(&built_for, CU_FUNC_ATTRIBUTE_PTX_VERSION, found.function), entry.name);
  found.dependent_launch = built_for >= kLowestDependentLaunch;
  return functions_[&entry] = found;
}

void CudaDevice::launch(const CommandList& commands) {
  for (const CommandList::Dispatch& dispatch : commands.dispatches) launch(commands, dispatch);
}

void CudaDevice::launch(const CommandList& commands, const CommandList::Dispatch& dispatch) {
  const Function function = find(*dispatch.entry);
  parameter_.clear();
  for (const CommandList::Argument& argument : commands.arguments_of(dispatch)) {
    const std::size_t at = parameter_.size();
    if (argument.buffer != nullptr) {
      const CUdeviceptr address = address_of(*argument.buffer) + argument.offset;
      parameter_.resize(at + kSlot);
      std::memcpy(&parameter_[at], &address, sizeof address);
    } else {
      parameter_.resize(at + (argument.size + kSlot - 1) / kSlot * kSlot);
      std::memcpy(&parameter_[at], &commands.values[argument.offset], argument.size);
    }
  }
  parameter_.resize(parameter_.size() + kSlot);  // the empty end of the kernel's Pack

  CUlaunchAttribute dependent{};
  dependent.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  dependent.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = dispatch.groups.x;
  config.gridDimY = dispatch.groups.y;
  config.gridDimZ = dispatch.groups.z;
  config.blockDimX = dispatch.entry->threads;
  config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = static_cast<unsigned>(dispatch.entry->large_memory);
  config.hStream = stream_.get();
  config.attrs = &dependent;
  config.numAttrs = function.dependent_launch && overlap() ? 1 : 0;
  void* parameters[] = {parameter_.data()};
  check(driver().cuLaunchKernelEx(&config, function.function, parameters, nullptr), dispatch.entry->name);
}

std::unique_ptr<Step> CudaDevice::do_record(CommandList commands) {
  context_->use();
  for (const CommandList::Dispatch& dispatch : commands.dispatches) find(*dispatch.entry);
  check(driver().cuStreamBeginCapture(stream_.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "the recording of a step");
  std::exception_ptr failure;
  try {
    launch(commands);
  } catch (...) {
    failure = std::current_exception();  // the capture has to be ended first
  }
  CUgraph captured = nullptr;
  const CUresult ended = driver().cuStreamEndCapture(stream_.get(), &captured);
  const Owned<CUgraph> graph(captured, driver().cuGraphDestroy);
  if (failure) std::rethrow_exception(failure);
  check(ended, "the recording of a step");
  CUgraphExec instance = nullptr;
  check(driver().cuGraphInstantiateWithFlags(&instance, graph.get(), 0), "the preparation of a step");
  return std::make_unique<CudaStep>(std::move(commands), Owned<CUgraphExec>(instance, driver().cuGraphExecDestroy));
}

}  // namespace

bool cuda_available() {
  if (cuda::find_driver() == nullptr) return false;
  try {
    first_device();
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::unique_ptr<Device> make_cuda_device() {
  return make_cuda_device(embedded::cuda_images());
}

std::unique_ptr<Device> make_cuda_device(std::span<const EmbeddedFile> images) {
  return std::make_unique<CudaDevice>(images);
}

}  // namespace lily
