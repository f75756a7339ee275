// All that a kernel file needs beyond <metal_stdlib>. The kernels are true Metal Shading Language; on Metal this header
// is the block below and nothing else. Every other toolchain finds its own <metal_stdlib> on the include path
// (shim/host: the emulator, shim/cuda: nvcc, shim/check: the MSL check), which defines the same words.
//
//   template <int N>
//   kernel void scale(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
//                     constant float& factor [[buffer(2)]], uint3 group [[threadgroup_position_in_grid]],
//                     uint thread_index [[thread_index_in_threadgroup]]) { ... }
//   ENTRY(scale_256, 128, scale<256>)      // host: device.dispatch(kernels::scale_256, {.groups = {4}}, x, y, 0.5F)
//
// ENTRY(name, threads, kernel<...>)
//     registers an entry point, launched with `threads` threads (a multiple of 32, at most 1024) a threadgroup. The
//     kernel is a template; its name and the entry's differ; buffers and values come first, in the order of their
//     numbers, builtins last.
// ENTRY_PREFETCH(name, threads, kernel<...>)
//     the same for a kernel that asks for weights before the dispatches before it are done: every thread of it calls
//     wait_for_inputs() before it leaves and before it touches anything that a dispatch writes.
// let_next_start();
//     before wait_for_inputs(): the launch after this one may begin to ask for its weights already. Without it that
//     happens after this kernel's wait, when all earlier launches are done; kernels that read what was written two
//     launches before them ahead of their wait rely on that.
// SHARED(Type, name);
//     threadgroup memory for one struct, declared in the kernel itself; garbage at first. At most 32 KiB in all.
//
// Dialect, kept so that every toolchain takes it: METAL_FUNC on every helper; vec<T, N> with [] and no vector
// constructors, swizzles or arithmetic; bfloat converted explicitly both ways; float literals with f; a method that
// hands a member on as `thread T*` is declared `void f() thread`; 32-bit atomics, relaxed; no lambdas, globals,
// recursion, goto, double (tools/msl_check tells). A buffer that is written is never the same memory as another
// argument.
#pragma once

#include <metal_stdlib>

#ifndef ENTRY
#define SHARED(type, name) threadgroup type name
#define ENTRY(name, threads, ...) template [[host_name(#name)]] [[kernel]] decltype(__VA_ARGS__) __VA_ARGS__;
#define ENTRY_PREFETCH(name, threads, ...) ENTRY(name, threads, __VA_ARGS__)
METAL_FUNC void let_next_start() {}
METAL_FUNC void wait_for_inputs() {}
#endif

using namespace metal;
