/* The body for x86-64 with AVX2 and F16C (every chip that has the one); empty elsewhere. */
#include "gonogo.h"
#ifdef GONOGO_X86
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,f16c")
#endif
#define HAVE_F16C 1
#define ISA(name) name##_avx2
#include "kernel.h"
#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
