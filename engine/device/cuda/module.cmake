# The CUDA device: libfsdp_cuda.so beside the programs, which load it when it is asked for and never link it. It brings
# along what it needs of the program's own ground, so that it loads into any program.
#
# The same sources are built in one of two ways: by nvcc against the CUDA toolkit, or by the host's compilers against
# tests/simcuda. Which one is told by include paths and libraries alone.

# The module but for its kernels and libraries, as folder/libfsdp_cuda.so.
function(fsdp_cuda_module target folder)
  file(GLOB host CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/engine/device/cuda/*.c)
  add_library(${target} MODULE ${host} ${CMAKE_SOURCE_DIR}/engine/checked.c ${CMAKE_SOURCE_DIR}/engine/error.c
                               ${CMAKE_SOURCE_DIR}/engine/device/thread.c ${CMAKE_SOURCE_DIR}/engine/device/operation.c)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE FSDP_VERSION="${PROJECT_VERSION}")
  target_link_options(${target} PRIVATE -Wl,--exclude-libs,ALL)
  if(NOT FSDP_SANITIZE) # clang's sanitizers are found in the program that loads the module
    target_link_options(${target} PRIVATE -Wl,--no-undefined)
  endif()
  set_target_properties(${target} PROPERTIES OUTPUT_NAME fsdp_cuda C_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY
                                                                                           ${folder})
endfunction()

set(FSDP_CUDA_MISSING "")
if(FSDP_CUDA MATCHES "^(auto|toolkit)$")
  include(CheckLanguage)
  check_language(CUDA)
  find_path(NCCL_INCLUDE nccl.h PATHS /usr/local/cuda/include)
  find_library(NCCL_LIBRARY nccl PATHS /usr/local/cuda/lib64 /usr/local/cuda/lib)
  if(NOT CMAKE_CUDA_COMPILER)
    list(APPEND FSDP_CUDA_MISSING "nvcc")
  endif()
  if(NOT NCCL_INCLUDE OR NOT NCCL_LIBRARY)
    list(APPEND FSDP_CUDA_MISSING "NCCL")
  endif()
endif()
if(FSDP_CUDA_MISSING)
  list(JOIN FSDP_CUDA_MISSING " and " FSDP_CUDA_MISSING)
  if(FSDP_CUDA STREQUAL "toolkit")
    message(FATAL_ERROR "FSDP_CUDA=toolkit: not found: ${FSDP_CUDA_MISSING}")
  endif()
  message(STATUS "The CUDA device is not built; not found: ${FSDP_CUDA_MISSING}")
endif()
if(FSDP_CUDA STREQUAL "off" OR FSDP_CUDA_MISSING)
  return()
endif()

# Before the target is made, which takes over what these variables say.
if(NOT FSDP_CUDA STREQUAL "simulated")
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100) # newer ones translate the last
  endif()
  if(NOT DEFINED CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_C_COMPILER_LAUNCHER})
  endif()
  set(CMAKE_CUDA_STANDARD 17)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
endif()

file(GLOB FSDP_CUDA_KERNELS CONFIGURE_DEPENDS engine/device/cuda/kernels/*.cu)
fsdp_cuda_module(fsdp_cuda ${CMAKE_BINARY_DIR})
install(TARGETS fsdp_cuda LIBRARY DESTINATION lib/fsdp_train)

if(FSDP_CUDA STREQUAL "simulated")
  simcuda_kernels(fsdp_cuda ${FSDP_CUDA_KERNELS})
  return()
endif()

target_sources(fsdp_cuda PRIVATE ${FSDP_CUDA_KERNELS})
target_include_directories(fsdp_cuda PRIVATE engine/device/cuda/ptx)
target_include_directories(fsdp_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} ${NCCL_INCLUDE})
target_compile_options(
  fsdp_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>
                    $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${FSDP_WERROR}>>:-Werror=all-warnings>)
target_link_libraries(fsdp_cuda PRIVATE CUDA::cublasLt ${NCCL_LIBRARY})
set_target_properties(
  fsdp_cuda PROPERTIES CUDA_VISIBILITY_PRESET hidden CUDA_RUNTIME_LIBRARY Static INSTALL_RPATH_USE_LINK_PATH ON)
