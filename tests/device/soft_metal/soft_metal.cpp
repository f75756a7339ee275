#include "soft_metal.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "device/emulated/emulator.h"
#include "device/emulated/sanitizers.h"
#include "device/metal/metal_cpp.h"
#include "objc_runtime.h"
#include "support/error.h"

extern "C" {
void* _Block_copy(const void*);
void _Block_release(const void*);
}

namespace soft_metal {
namespace {

using UInt = NS::UInteger;
using lily::Access;
using lily::Entry;

constexpr UInt kPage = 16384;
constexpr UInt kMaxBytes = 4096;  // of one setBytes
constexpr UInt kMaxIndex = 30;    // of a buffer

struct Buffer : Object {
  char* data = nullptr;
  UInt length = 0;
  bool owned = false;
  std::atomic<int> in_use{0};    // by command buffers in flight
  std::atomic<int> resident{0};  // in committed residency sets
};
struct Library : Object {
  std::string source;
  bool metal_4 = false;
};
struct Function : Object {
  const Entry* entry = nullptr;
  bool metal_4 = false;
};
struct PipelineDescriptor : Object {
  Function* function = nullptr;
  UInt threads = 0;
};
struct Pipeline : Object {
  const Entry* entry = nullptr;
  bool metal_4 = false;
};
struct CompileOptions : Object {
  UInt version = 0;
  bool math_mode_set = false;
};
struct Fence : Object {
  bool updated = false;
};
struct ResidencySet : Object {
  std::set<Buffer*> wanted, committed;
};
struct Queue : Object {
  std::vector<ResidencySet*> residency;
};

struct Binding {
  Buffer* buffer = nullptr;
  UInt offset = 0;
  std::vector<char> bytes;
};
struct Dispatch {
  const Entry* entry = nullptr;
  bool metal_4 = false;
  std::vector<Binding> bound;
  lily::emulated::Position groups;
};
struct CommandBuffer : Object {
  std::vector<std::vector<Dispatch>> stages{1};
  bool waits_for_fence = false;
  std::vector<void*> handlers;
  std::vector<Buffer*> used;
  Queue* queue = nullptr;
  bool open = false, committed = false, finished = false, reclaimed = false;
  std::atomic<UInt> status{MTL::CommandBufferStatusNotEnqueued};
  ErrorObject* error = nullptr;
  lily::emulated::SanitizerThread order;  // knows what the host did before the commit, and nothing later
};
struct Encoder : Object {
  CommandBuffer* commands = nullptr;
  bool ended = false;
  Pipeline* pipeline = nullptr;
  std::map<UInt, Binding> bound;
};

using EntryList = std::span<const Entry* const> (*)();
std::vector<EntryList>& entry_lists() {
  static std::vector<EntryList> all;
  return all;
}
const Entry* find_entry(const std::string& name) {
  for (const EntryList list : entry_lists())
    for (const Entry* entry : list())
      if (name == entry->name) return entry;
  return nullptr;
}
Compilations& compilations() {
  static Compilations count;
  return count;
}

/// The GPU: one thread that runs what is committed.
class Gpu {
 public:
  Gpu() : thread_([this] { work(); }) {}
  ~Gpu() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void commit(CommandBuffer* commands) {
    emulator_.host_to_device();
    commands->order.renew(nullptr, 0);
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(commands);
    }
    changed_.notify_all();
  }
  void wait(CommandBuffer* commands) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return commands->finished; });
    emulator_.device_to_host();
    if (!std::exchange(commands->reclaimed, true)) release(commands);  // commit's reference
  }
  static Gpu& instance() {
    static Gpu gpu;
    return gpu;
  }

 private:
  void work() {
    for (;;) {
      CommandBuffer* commands = nullptr;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
        if (queue_.empty()) return;
        commands = queue_.front();
        queue_.pop_front();
      }
      run(commands);
    }
  }

  void run(CommandBuffer* commands) {
    const long failure = std::exchange(machine().fail_command_buffer, 0);
    if (failure == 0) {
      // The locks of this thread and its host must not order kernels: commits, fences and barriers do.
      lily::emulated::SanitizerThread& order = commands->order;
      self_.adopt_current();
      self_.become(order);
      run_stages(commands);
      order.become(self_);
    }
    complete(commands, failure);
    {
      const std::lock_guard lock(mutex_);
      commands->finished = true;
    }
    changed_.notify_all();
  }

  void run_stages(CommandBuffer* commands) {
    const lily::emulated::IgnoreAccesses ignore;  // to this object: only the kernels' accesses count
    if (commands->waits_for_fence) emulator_.fence();
    for (auto& stage : commands->stages) run_stage(stage, &stage == &commands->stages.back());
  }

  void run_stage(std::vector<Dispatch>& stage, bool last) {
    std::shuffle(stage.begin(), stage.end(), random_);
    for (Dispatch& dispatch : stage) {
      std::vector<void*>& arguments = arguments_.emplace_back();
      for (Binding& binding : dispatch.bound) {
        arguments.push_back(binding.buffer == nullptr ? binding.bytes.data() : binding.buffer->data + binding.offset);
      }
      try {
        emulator_.run(*dispatch.entry, arguments.data(), dispatch.groups);
      } catch (const lily::Error& error) {
        violation(error.what());
      }
      if (dispatch.metal_4 && machine().tensor_ops_lie) spoil(dispatch, arguments);
    }
    if (!last) emulator_.fence();
  }

  static void spoil(const Dispatch& dispatch, const std::vector<void*>& arguments) {
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (dispatch.entry->parameters[i].access == Access::kWrite) *static_cast<float*>(arguments[i]) += 1;
    }
  }

  static void complete(CommandBuffer* commands, long failure) {
    const lily::metal::AutoreleasePool pool;
    if (failure != 0) commands->error = retain(make_error("software failure", failure));
    commands->status = failure == 0 ? MTL::CommandBufferStatusCompleted : MTL::CommandBufferStatusError;
    for (Buffer* buffer : commands->used) --buffer->in_use;
    for (void* handler : commands->handlers) {
      reinterpret_cast<void (*)(void*, CommandBuffer*)>(static_cast<void**>(handler)[2])(handler, commands);
      _Block_release(handler);
    }
  }

  lily::emulated::SanitizerThread self_;
  lily::emulated::Emulator emulator_{machine().seed};
  std::mt19937_64 random_{machine().seed};
  std::deque<std::vector<void*>> arguments_;  // kept: GPU threads may read them until someone waits
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<CommandBuffer*> queue_;
  bool stop_ = false;
  std::thread thread_;
};

// ---- checks ----

void check_binding(const std::string& at, const Binding& binding, const lily::Parameter& parameter,
                   const Queue& queue) {
  if (parameter.access == Access::kValue) {
    if (binding.buffer != nullptr) violation(at + ": a buffer where the kernel has a value");
    if (binding.bytes.size() != parameter.size) violation(at + ": a value of the wrong size");
    return;
  }
  if (binding.buffer == nullptr) violation(at + ": bytes where the kernel has a buffer");
  if (binding.offset % parameter.alignment != 0) violation(at + ": a misaligned offset");
  if (binding.buffer->length - binding.offset < parameter.size) violation(at + ": less than one element");
  const bool resident = std::any_of(queue.residency.begin(), queue.residency.end(),
                                    [&](const ResidencySet* set) { return set->committed.count(binding.buffer) != 0; });
  if (!resident) violation(at + ": a buffer that is not resident");
}

void dispatch(Encoder* encoder, MTL::Size groups, MTL::Size threads) {
  if (encoder->ended) violation("a dispatch after endEncoding");
  if (encoder->pipeline == nullptr) violation("a dispatch without a pipeline");
  const Entry& entry = *encoder->pipeline->entry;
  const std::string at = std::string(entry.name) + ": ";
  if (threads.width * threads.height * threads.depth > machine().max_threads) violation(at + "too many threads");
  if (threads.width != entry.threads || threads.height != 1 || threads.depth != 1) {
    violation(at + "not the entry's threads");
  }
  if (groups.width == 0 || groups.height == 0 || groups.depth == 0) violation(at + "an empty grid");
  Dispatch& made = encoder->commands->stages.back().emplace_back();
  made.entry = &entry;
  made.metal_4 = encoder->pipeline->metal_4;
  made.groups = {static_cast<unsigned>(groups.width), static_cast<unsigned>(groups.height),
                 static_cast<unsigned>(groups.depth)};
  for (UInt i = 0; i < entry.parameters.size(); ++i) {
    const auto bound = encoder->bound.find(i);
    const std::string which = at + "argument " + std::to_string(i);
    if (bound == encoder->bound.end()) violation(which + " is not bound");
    check_binding(which, bound->second, entry.parameters[i], *encoder->commands->queue);
    made.bound.push_back(bound->second);
    if (bound->second.buffer == nullptr) continue;
    ++bound->second.buffer->in_use;
    encoder->commands->used.push_back(bound->second.buffer);
  }
}

// ---- the classes ----

Buffer* make_buffer(char* data, UInt length, bool owned) {
  auto* buffer = make<Buffer>("SoftBuffer");
  buffer->data = data;
  buffer->length = length;
  buffer->owned = owned;
  buffer->destroy = [](Object* object) {
    auto* dead = static_cast<Buffer*>(object);
    if (dead->in_use > 0) violation("a buffer is freed while a command buffer uses it");
    if (dead->resident > 0) violation("a buffer is freed while it is in a residency set");
    if (dead->owned) std::free(dead->data);
    delete dead;
  };
  return buffer;
}

void define_buffers() {
  method("SoftDevice", "newBufferWithLength:options:", [](Object*, SEL, UInt length, UInt options) {
    if ((options & MTL::ResourceHazardTrackingModeUntracked) == 0) violation("a tracked buffer");
    if (length > machine().max_buffer_length) return static_cast<Buffer*>(nullptr);
    auto* data = static_cast<char*>(std::aligned_alloc(kPage, (length + kPage - 1) / kPage * kPage));
    std::memset(data, 0xff, length);
    return make_buffer(data, length, true);
  });
  method("SoftDevice", "newBufferWithBytesNoCopy:length:options:deallocator:",
         [](Object*, SEL, char* data, UInt length, UInt options, void*) {
           const auto page = static_cast<UInt>(sysconf(_SC_PAGESIZE));
           if (reinterpret_cast<UInt>(data) % page != 0 || length % page != 0)
             violation("no-copy memory is whole pages");
           if ((options & MTL::ResourceHazardTrackingModeUntracked) == 0) violation("a tracked buffer");
           return make_buffer(data, length, false);
         });
  method("SoftBuffer", "contents", [](Buffer* b, SEL) { return b->data; });
  method("SoftBuffer", "length", [](Buffer* b, SEL) { return b->length; });

  method("+MTLResidencySetDescriptor", "alloc", [](void*, SEL) { return make<Object>("MTLResidencySetDescriptor"); });
  method("MTLResidencySetDescriptor", "setLabel:", [](Object*, SEL, String*) {});
  method("SoftDevice", "newResidencySetWithDescriptor:error:", [](Object*, SEL, Object*, ErrorObject** error) {
    if (machine().macos[0] >= 15) return make<ResidencySet>("SoftResidencySet");
    *error = make_error("needs macOS 15", 1);
    return static_cast<ResidencySet*>(nullptr);
  });
  method("SoftResidencySet", "addAllocation:", [](ResidencySet* set, SEL, Buffer* b) {
    if (set->wanted.insert(b).second) ++b->resident;
  });
  method("SoftResidencySet", "removeAllocation:", [](ResidencySet* set, SEL, Buffer* b) {
    if (set->wanted.erase(b) != 0) --b->resident;
    set->committed.erase(b);
  });
  method("SoftResidencySet", "commit", [](ResidencySet* set, SEL) { set->committed = set->wanted; });
  method("SoftResidencySet", "requestResidency", [](ResidencySet*, SEL) {});
}

bool registers(const Library& library, const std::string& name) {
  return library.source.find("ENTRY(" + name + ",") != std::string::npos ||
         library.source.find("ENTRY_PREFETCH(" + name + ",") != std::string::npos;
}

Library* compile(const std::string& source, const CompileOptions& options, ErrorObject** error) {
  if (source.find("#include \"") != std::string::npos) violation("a source that includes files: there are none");
  if (!options.math_mode_set) violation("the math mode is left to chance");
  const bool metal_4 = options.version == MTL::LanguageVersion4_0;
  (metal_4 ? compilations().metal_4 : compilations().metal_3) += 1;
  if (metal_4 ? !machine().metal_4_compiles : !machine().metal_3_compiles) {
    *error = make_error("program_source:1: error: software failure", 3);
    return nullptr;
  }
  auto* library = make<Library>("SoftLibrary");
  library->source = source;
  library->metal_4 = metal_4;
  return library;
}

void define_libraries() {
  method("+MTLCompileOptions", "alloc", [](void*, SEL) { return make<CompileOptions>("MTLCompileOptions"); });
  method("MTLCompileOptions",
         "setLanguageVersion:", [](CompileOptions* o, SEL, UInt version) { o->version = version; });
  method("MTLCompileOptions", "setMathMode:", [](CompileOptions* o, SEL, NS::Integer) { o->math_mode_set = true; });
  method("SoftDevice", "newLibraryWithSource:options:error:",
         [](Object*, SEL, String* source, CompileOptions* options, ErrorObject** error) {
           return compile(source->text, *options, error);
         });
  method("SoftLibrary", "newFunctionWithName:", [](Library* library, SEL, String* name) {
    const Entry* entry = find_entry(name->text);
    if (entry == nullptr || !registers(*library, name->text)) return static_cast<Function*>(nullptr);
    auto* function = make<Function>("SoftFunction");
    function->entry = entry;
    function->metal_4 = library->metal_4;
    return function;
  });
  method("+MTLComputePipelineDescriptor", "alloc",
         [](void*, SEL) { return make<PipelineDescriptor>("MTLComputePipelineDescriptor"); });
  method("MTLComputePipelineDescriptor", "setLabel:", [](Object*, SEL, String*) {});
  method("MTLComputePipelineDescriptor",
         "setComputeFunction:", [](PipelineDescriptor* d, SEL, Function* function) { d->function = function; });
  method("MTLComputePipelineDescriptor",
         "setMaxTotalThreadsPerThreadgroup:", [](PipelineDescriptor* d, SEL, UInt threads) { d->threads = threads; });
  method("MTLComputePipelineDescriptor",
         "setThreadGroupSizeIsMultipleOfThreadExecutionWidth:", [](PipelineDescriptor*, SEL, bool) {});
  method("SoftDevice", "newComputePipelineStateWithDescriptor:options:reflection:error:",
         [](Object*, SEL, PipelineDescriptor* d, UInt, void*, ErrorObject**) {
           auto* pipeline = make<Pipeline>("SoftPipeline");
           pipeline->entry = d->function->entry;
           pipeline->metal_4 = d->function->metal_4;
           return pipeline;
         });
  method("SoftPipeline", "maxTotalThreadsPerThreadgroup", [](Object*, SEL) { return UInt{machine().max_threads}; });
  method("SoftPipeline", "threadExecutionWidth", [](Object*, SEL) { return UInt{32}; });
}

void define_commands() {
  method("SoftDevice", "newFence", [](Object*, SEL) { return make<Fence>("SoftFence"); });
  method("SoftDevice", "newCommandQueue", [](Object*, SEL) { return make<Queue>("SoftQueue"); });
  method("SoftQueue", "addResidencySet:", [](Queue* q, SEL, ResidencySet* set) { q->residency.push_back(set); });
  method("SoftQueue", "commandBufferWithUnretainedReferences", [](Queue* queue, SEL) {
    auto* commands = make<CommandBuffer>("SoftCommandBuffer");
    commands->queue = queue;
    commands->destroy = [](Object* object) {
      auto* dead = static_cast<CommandBuffer*>(object);
      if (dead->error != nullptr) release(dead->error);
      delete dead;
    };
    return autoreleased(commands);
  });
  method("SoftCommandBuffer", "computeCommandEncoderWithDispatchType:", [](CommandBuffer* c, SEL, UInt type) {
    if (type != MTL::DispatchTypeConcurrent) violation("a serial encoder");
    if (c->open) violation("two encoders open at once");
    c->open = true;
    auto* encoder = make<Encoder>("SoftEncoder");
    encoder->commands = c;
    return autoreleased(encoder);
  });
  method("SoftCommandBuffer",
         "addCompletedHandler:", [](CommandBuffer* c, SEL, void* block) { c->handlers.push_back(_Block_copy(block)); });
  method("SoftCommandBuffer", "commit", [](CommandBuffer* c, SEL) {
    if (c->open) violation("commit before endEncoding");
    if (std::exchange(c->committed, true)) violation("a command buffer is committed twice");
    Gpu::instance().commit(retain(c));
  });
  method("SoftCommandBuffer", "waitUntilCompleted", [](CommandBuffer* c, SEL) {
    if (!c->committed) violation("a wait for what was not committed");
    Gpu::instance().wait(c);
  });
  method("SoftCommandBuffer", "status", [](CommandBuffer* c, SEL) { return UInt{c->status}; });
  method("SoftCommandBuffer", "error", [](CommandBuffer* c, SEL) { return c->error; });
}

void define_encoders() {
  method("SoftEncoder",
         "setComputePipelineState:", [](Encoder* e, SEL, Pipeline* pipeline) { e->pipeline = pipeline; });
  method("SoftEncoder", "setBuffer:offset:atIndex:", [](Encoder* e, SEL, Buffer* buffer, UInt offset, UInt index) {
    if (offset >= buffer->length) violation("an offset past the buffer's end");
    if (index > kMaxIndex) violation("a buffer index over 30");
    e->bound[index] = {buffer, offset, {}};
  });
  method("SoftEncoder", "setBytes:length:atIndex:", [](Encoder* e, SEL, const char* bytes, UInt length, UInt index) {
    if (length > kMaxBytes) violation("setBytes of more than 4 KiB");
    if (index > kMaxIndex) violation("a buffer index over 30");
    e->bound[index] = {nullptr, 0, std::vector<char>(bytes, bytes + length)};
  });
  method("SoftEncoder", "dispatchThreadgroups:threadsPerThreadgroup:",
         [](Encoder* e, SEL, MTL::Size groups, MTL::Size threads) { dispatch(e, groups, threads); });
  method("SoftEncoder", "memoryBarrierWithScope:", [](Encoder* e, SEL, UInt scope) {
    if (scope != MTL::BarrierScopeBuffers) violation("a barrier that is not for buffers");
    e->commands->stages.emplace_back();
  });
  method("SoftEncoder", "waitForFence:", [](Encoder* e, SEL, Fence* fence) {
    if (fence->updated) e->commands->waits_for_fence = true;
  });
  method("SoftEncoder", "updateFence:", [](Encoder*, SEL, Fence* fence) { fence->updated = true; });
  method("SoftEncoder", "endEncoding", [](Encoder* e, SEL) {
    if (std::exchange(e->ended, true)) violation("endEncoding twice");
    e->commands->open = false;
  });
}

void define_device() {
  method("+NSProcessInfo", "processInfo", [](void*, SEL) { return autoreleased(make<Object>("NSProcessInfo")); });
  method("NSProcessInfo", "isOperatingSystemAtLeastVersion:", [](Object*, SEL, NS::OperatingSystemVersion wanted) {
    const long asked[3] = {wanted.majorVersion, wanted.minorVersion, wanted.patchVersion};
    return !std::lexicographical_compare(machine().macos, machine().macos + 3, asked, asked + 3);
  });
  method("SoftDevice", "name", [](Object*, SEL) { return make_string("software Metal"); });
  method("SoftDevice", "architecture", [](Object*, SEL) { return autoreleased(make<Object>("SoftArchitecture")); });
  method("SoftArchitecture", "name", [](Object*, SEL) { return make_string(machine().architecture); });
  method("SoftDevice", "hasUnifiedMemory", [](Object*, SEL) { return machine().unified_memory; });
  method("SoftDevice", "supportsFamily:", [](Object*, SEL, NS::Integer) { return machine().unified_memory; });
  method("SoftDevice", "maxBufferLength", [](Object*, SEL) { return UInt{machine().max_buffer_length}; });
  method("SoftDevice", "recommendedMaxWorkingSetSize", [](Object*, SEL) { return machine().recommended_working_set; });
}

}  // namespace

Machine& machine() {
  static Machine one;
  return one;
}

void add_entries(EntryList list) {
  entry_lists().push_back(list);
}

Compilations take_compilations() {
  return std::exchange(compilations(), {});
}

}  // namespace soft_metal

extern "C" {

Class objc_lookUpClass(const char* name) {
  static const bool defined = [] {
    using namespace soft_metal;
    define_foundation();
    define_device();
    define_buffers();
    define_libraries();
    define_commands();
    define_encoders();
    return true;
  }();
  static_cast<void>(defined);
  return reinterpret_cast<Class>(&soft_metal::class_named(name));
}

MTL::Device* MTLCreateSystemDefaultDevice() {
  return reinterpret_cast<MTL::Device*>(soft_metal::make<soft_metal::Object>("SoftDevice"));
}
NS::Array* MTLCopyAllDevicesWithObserver(NS::Object**, MTL::DeviceNotificationHandlerBlock) {
  return nullptr;
}
void MTLRemoveDeviceObserver(const NS::Object*) {}
}
