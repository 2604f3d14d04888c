/* The body for x86-64 with AVX-512 (F, DQ, BW, VL: every server chip that has it); empty elsewhere. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("f16c,avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512")
#endif
#include "gonogo.h"
#ifdef GONOGO_X86
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("f16c,avx512f,avx512dq,avx512bw,avx512vl"))), apply_to = function)
#endif
#define HAVE_F16C 1
#define HAVE_AVX512 1
#define ISA(name) name##_avx512
#include "kernel.h"
#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
