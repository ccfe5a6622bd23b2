# Where LibTorch is: TORCH_INCLUDE and TORCH_LIB.

if(NOT CMAKE_PREFIX_PATH)
  file(GLOB venv_torch ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
  set(CMAKE_PREFIX_PATH ${venv_torch})
endif()
list(TRANSFORM CMAKE_PREFIX_PATH REPLACE "/share/cmake/?(Torch)?$" "" OUTPUT_VARIABLE torch_roots)
find_path(TORCH_INCLUDE torch/csrc/api/include/torch/torch.h PATHS ${torch_roots} PATH_SUFFIXES include NO_DEFAULT_PATH)
if(NOT TORCH_INCLUDE)
  message(FATAL_ERROR "LibTorch not found: run scripts/quickstart, or name one with -DCMAKE_PREFIX_PATH=DIR (searched: ${torch_roots})")
endif()
get_filename_component(TORCH_ROOT ${TORCH_INCLUDE} DIRECTORY)
set(TORCH_LIB ${TORCH_ROOT}/lib)
