# One static library per folder of lib/, so that the link enforces the layers, and one test program per folder of tests/.

# LibTorch's headers take 25 s a file to parse; every target reuses this one parse.
if(NOT EXISTS ${CMAKE_BINARY_DIR}/pch.cpp)
  file(WRITE ${CMAKE_BINARY_DIR}/pch.cpp "")
endif()
add_library(scatterlm_pch OBJECT ${CMAKE_BINARY_DIR}/pch.cpp)
target_link_libraries(scatterlm_pch PUBLIC scatterlm::torch)
target_include_directories(scatterlm_pch PUBLIC ${CMAKE_SOURCE_DIR})
target_precompile_headers(scatterlm_pch PUBLIC ${CMAKE_SOURCE_DIR}/lib/pch.h)

option(SCATTERLM_KERNELS "Ops on GPUs run our kernels; OFF: LibTorch's own operations, to compare with" ON)
if(NOT SCATTERLM_CUDA)
  set(SCATTERLM_KERNELS OFF)
endif()

# scatterlm_library(<folder of lib> [lower folders...]). A folder whose *_cuda.cpp files call kernels has no_kernels.cpp to take
# their place in a build without kernels.
function(scatterlm_library name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/lib/${name}/*.cpp)
  if(SCATTERLM_KERNELS)
    list(FILTER sources EXCLUDE REGEX "/no_kernels\\.cpp$")
  else()
    list(FILTER sources EXCLUDE REGEX "_cuda\\.cpp$")
  endif()
  add_library(scatterlm_${name} STATIC ${sources})
  # Tests put other objects in their place, one by one.
  set(replaceable ${sources})
  list(FILTER replaceable INCLUDE REGEX "/no_kernels\\.cpp$|_cuda\\.cpp$")
  set_source_files_properties(${replaceable} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  # A field of a type in an anonymous namespace: in a unity build GCC takes the file that has both for a header.
  target_compile_options(scatterlm_${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  target_link_libraries(scatterlm_${name} PUBLIC scatterlm::torch)
  target_include_directories(scatterlm_${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_precompile_headers(scatterlm_${name} REUSE_FROM scatterlm_pch)
  foreach(dependency ${ARGN})
    target_link_libraries(scatterlm_${name} PUBLIC scatterlm_${dependency})
  endforeach()
endfunction()
