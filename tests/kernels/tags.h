// The tests of kernels run twice: compiled for the machine of tests/kernels/emulated, and on a GPU (hidden there).
#pragma once

#ifdef SCATTERLM_EMULATED
#define KERNEL_TAGS "[kernels]"
#else
#define KERNEL_TAGS "[kernels][.gpu]"
#endif
