# Compiler cache, linker, sanitizers and the choice of CUDA architectures.

find_program(CCACHE ccache)
if(CCACHE)
  # GCC's precompiled headers need the sloppiness; base_dir lets two build folders share results.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_NOHASHDIR=1
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
endif()

if(EXISTS /usr/libexec/mold/ld)
  add_link_options(-B/usr/libexec/mold)  # GCC 11 knows no -fuse-ld=mold, but takes `ld` from a -B folder
endif()

add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra> $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>
                    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
# at::parallel_for is a plain loop in code compiled without OpenMP. -ffp-contract=off: same bits whatever the vector width.
# Clang has an OpenMP of its own, which only the fuzzers would use.
add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fopenmp> $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
add_link_options($<$<LINK_LANG_AND_ID:CXX,GNU>:-fopenmp>)  # run time: DT_RPATH finds LibTorch's own libgomp first, so there is one thread pool

set(SCATTERLM_SANITIZE "" CACHE STRING "address: AddressSanitizer and UndefinedBehaviorSanitizer; thread: ThreadSanitizer; empty: none")
if(SCATTERLM_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(SCATTERLM_SANITIZE STREQUAL "thread")
  # LibTorch and libgomp are not instrumented, so OpenMP has one thread (scripts/tsan). GCC warns of fences, which it cannot follow.
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer -Wno-tsan)
  add_link_options(-fsanitize=thread)
elseif(SCATTERLM_SANITIZE)
  message(FATAL_ERROR "SCATTERLM_SANITIZE is ${SCATTERLM_SANITIZE}, must be address, thread or empty")
endif()

option(SCATTERLM_FUZZ "Build tests/fuzz, with Clang: libFuzzer's coverage, AddressSanitizer and UndefinedBehaviorSanitizer" OFF)
if(SCATTERLM_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()

# The system's nvcc, or PyPI's as scripts/common.sh installs it.
file(GLOB venv_cuda ${CMAKE_CURRENT_LIST_DIR}/../.venv/lib/python3*/site-packages/nvidia/cu13/bin)
find_program(NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin PATHS ${venv_cuda})

# "off" builds without CUDA; otherwise a list as in CMAKE_CUDA_ARCHITECTURES.
if(NOT DEFINED SCATTERLM_CUDA_ARCHITECTURES)
  if(NVCC)
    set(default_architectures "80;90a")
  else()
    set(default_architectures "off")
  endif()
  set(SCATTERLM_CUDA_ARCHITECTURES "${default_architectures}" CACHE STRING "GPU architectures, or off")
endif()
if(NOT SCATTERLM_CUDA_ARCHITECTURES STREQUAL "off" AND NOT EXISTS ${TORCH_LIB}/libtorch_cuda.so)
  message(STATUS "scatterlm: ${TORCH_LIB} has no libtorch_cuda.so: building without CUDA")
  set(SCATTERLM_CUDA_ARCHITECTURES off)  # not in the cache: another LibTorch may have it
endif()
if(SCATTERLM_CUDA_ARCHITECTURES STREQUAL "off")
  set(SCATTERLM_CUDA OFF)
else()
  set(SCATTERLM_CUDA ON)
  if(NOT NVCC)
    message(FATAL_ERROR "no nvcc: install CUDA 13 and put nvcc on PATH or name its folder with CUDA_HOME, or build without: -DSCATTERLM_CUDA_ARCHITECTURES=off")
  endif()
  set(CMAKE_CUDA_COMPILER ${NVCC})
  set(CMAKE_CUDA_ARCHITECTURES ${SCATTERLM_CUDA_ARCHITECTURES})
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # LibTorch loads the shared runtime; a second, static one would not see its context
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # CMake 3.25 has no flag for it
  find_package(CUDAToolkit REQUIRED)
endif()
message(STATUS "scatterlm: CUDA architectures ${SCATTERLM_CUDA_ARCHITECTURES}")
