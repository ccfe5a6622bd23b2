#include "tests/kernels/emulated/cuda_language.h"
