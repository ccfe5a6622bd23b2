# Run at each build: cmake -DREPOSITORY=... -DOUTPUT=.../source_hash.h -P source_hash.cmake
# Writes what version.h calls SourceHash, for each source set; the file is left alone when nothing changed.

cmake_minimum_required(VERSION 3.25)
set(ENV{GIT_OPTIONAL_LOCKS} 0)  # reading must not be in the way of a commit

# Sets `result` to the C++ initialiser of one SourceHash.
function(describe_sources result)
  execute_process(COMMAND git ls-files -s --error-unmatch -- ${ARGN} WORKING_DIRECTORY ${REPOSITORY}
                  OUTPUT_VARIABLE index RESULT_VARIABLE unknown ERROR_QUIET)
  if(unknown)  # no git, no checkout, or a path without files
    set(hash unknown)
    set(dirty true)
  else()
    string(SHA256 hash "${index}")
    string(SUBSTRING ${hash} 0 16 hash)
    execute_process(COMMAND git diff --quiet -- ${ARGN} WORKING_DIRECTORY ${REPOSITORY} RESULT_VARIABLE changed)
    # CMake globs sources: one that git does not know is compiled as well.
    execute_process(COMMAND git ls-files --others --exclude-standard -- ${ARGN} WORKING_DIRECTORY ${REPOSITORY}
                    OUTPUT_VARIABLE untracked)
    if(changed OR untracked)
      set(dirty true)
    else()
      set(dirty false)
    endif()
  endif()
  list(JOIN ARGN "\", \"" paths)
  set(${result} "{{\"${paths}\"}, \"${hash}\", ${dirty}}" PARENT_SCOPE)
endfunction()

describe_sources(training kernels lib app)
describe_sources(kernels kernels lib/ops)
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT
"static const scatterlm::SourceHash kTrainingSources = @training@;
static const scatterlm::SourceHash kKernelSources = @kernels@;
" @ONLY)
