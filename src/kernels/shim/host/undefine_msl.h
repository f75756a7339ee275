// Gives the words that the host's <metal_stdlib> took as macros back to C++, and its warnings. Once, after all kernels.
#pragma once

#undef device
#undef threadgroup
#undef thread
#undef constant
#undef kernel
#undef buffer
#undef thread_index_in_threadgroup
#undef simdgroup_index_in_threadgroup
#undef thread_index_in_simdgroup
#undef threadgroup_position_in_grid
#undef thread_position_in_threadgroup
#undef thread_position_in_grid
#undef threads_per_threadgroup
#undef threadgroups_per_grid
#undef simdgroups_per_threadgroup

#pragma GCC diagnostic pop
