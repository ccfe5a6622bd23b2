# What is linked from outside: LibTorch (imported as scatterlm::torch) and packaged libraries.
# LibTorch is linked directly: find_package(Torch) of a CUDA wheel fails without a toolkit and picks its own architectures.

add_library(scatterlm_torch INTERFACE)
add_library(scatterlm::torch ALIAS scatterlm_torch)
target_include_directories(scatterlm_torch SYSTEM INTERFACE ${TORCH_INCLUDE} ${TORCH_INCLUDE}/torch/csrc/api/include)
target_link_libraries(scatterlm_torch INTERFACE ${TORCH_LIB}/libtorch_cpu.so ${TORCH_LIB}/libc10.so)
# LibTorch brings the headers of fmt alone.
add_library(scatterlm_fmt STATIC ${CMAKE_SOURCE_DIR}/cmake/fmt.cpp)
target_include_directories(scatterlm_fmt SYSTEM PRIVATE ${TORCH_INCLUDE})
target_link_libraries(scatterlm_torch INTERFACE scatterlm_fmt)
# c10d's headers are empty without this; it changes no layout.
target_compile_definitions(scatterlm_torch INTERFACE USE_DISTRIBUTED USE_C10D)
if(SCATTERLM_CUDA)
  # Nothing refers to a symbol of libtorch_cuda: its kernels register themselves when it is loaded.
  target_link_libraries(scatterlm_torch INTERFACE
    -Wl,--push-state,--no-as-needed ${TORCH_LIB}/libtorch_cuda.so ${TORCH_LIB}/libc10_cuda.so -Wl,--pop-state)
endif()
if(SCATTERLM_CUDA)
  # PyPI's LibTorch brings NCCL as a package of its own; another one was perhaps built with the system's.
  find_path(NCCL_INCLUDE nccl.h HINTS ${TORCH_ROOT}/../nvidia/nccl/include REQUIRED)
  find_library(NCCL_LIBRARY NAMES libnccl.so.2 nccl HINTS ${TORCH_ROOT}/../nvidia/nccl/lib REQUIRED)
endif()
list(APPEND CMAKE_BUILD_RPATH ${TORCH_LIB})
add_link_options(-Wl,--disable-new-dtags)  # DT_RPATH: also serves the libraries that LibTorch's own libraries need

find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_path(XXHASH_INCLUDE xxhash.h REQUIRED)  # used header only

# Static, so that the binary runs on a machine without these packages.
find_library(YAML_CPP_LIBRARY NAMES libyaml-cpp.a REQUIRED)
find_path(YAML_CPP_INCLUDE yaml-cpp/yaml.h REQUIRED)
find_path(SPDLOG_INCLUDE spdlog/spdlog.h REQUIRED)  # used header only, see lib/util
# Tokenizers: split patterns, normalization, compressed text.
find_library(PCRE2_LIBRARY NAMES libpcre2-8.a REQUIRED)
find_path(PCRE2_INCLUDE pcre2.h REQUIRED)
find_library(UTF8PROC_LIBRARY NAMES libutf8proc.a REQUIRED)
find_path(UTF8PROC_INCLUDE utf8proc.h REQUIRED)
find_library(ZSTD_LIBRARY NAMES libzstd.a REQUIRED)
find_path(ZSTD_INCLUDE zstd.h REQUIRED)
find_library(ZLIB_LIBRARY NAMES libz.a REQUIRED)
find_path(ZLIB_INCLUDE zlib.h REQUIRED)
