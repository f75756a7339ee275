// Instructions of this CPU that are none of Highway 1.0.3's targets, asked of the CPU or the system at run time. Each
// is false on other kinds of CPU. Whether vectors can be used at all is Highway's question.
#pragma once

namespace lily::cpu {

/// x86: `vpdpbusd` on 256 bits without AVX-512 (AVX-VNNI).
bool has_avx_vnni();
/// x86: AMX with products of bytes, and the system lets this process use it (Linux is asked to).
bool has_amx();
/// 64-bit ARM: `sdot`.
bool has_dotprod();
/// 64-bit ARM: `smmla`.
bool has_i8mm();

}  // namespace lily::cpu
