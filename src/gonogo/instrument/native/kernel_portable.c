/* The body for whatever the compiler targets by default. */
#define ISA(name) name##_portable
#include "kernel.h"
