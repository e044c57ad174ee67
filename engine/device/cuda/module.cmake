# The CUDA device: libfsdp_cuda.so beside the programs, which load it when it is asked for and never link it. It brings
# along what it needs of the program's own ground, so that it loads into any program.

set(FSDP_CUDA_NEEDS "")
if(NOT FSDP_CUDA STREQUAL "off")
  include(CheckLanguage)
  check_language(CUDA)
  find_path(NCCL_INCLUDE nccl.h PATHS /usr/local/cuda/include)
  find_library(NCCL_LIBRARY nccl PATHS /usr/local/cuda/lib64 /usr/local/cuda/lib)
  if(NOT CMAKE_CUDA_COMPILER)
    list(APPEND FSDP_CUDA_NEEDS "nvcc")
  endif()
  if(NOT NCCL_INCLUDE OR NOT NCCL_LIBRARY)
    list(APPEND FSDP_CUDA_NEEDS "NCCL")
  endif()
endif()
if(FSDP_CUDA_NEEDS)
  list(JOIN FSDP_CUDA_NEEDS " and " FSDP_CUDA_NEEDS)
  if(FSDP_CUDA STREQUAL "toolkit")
    message(FATAL_ERROR "FSDP_CUDA=toolkit: ${FSDP_CUDA_NEEDS} was not found")
  endif()
  message(STATUS "${FSDP_CUDA_NEEDS} was not found, so the CUDA device is not built")
endif()
if(FSDP_CUDA STREQUAL "off" OR FSDP_CUDA_NEEDS)
  return()
endif()

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100) # newer ones translate the last
endif()
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)

file(GLOB FSDP_CUDA_SOURCES CONFIGURE_DEPENDS engine/device/cuda/*.c engine/device/cuda/kernels/*.cu comm/nccl*.c)
add_library(fsdp_cuda MODULE ${FSDP_CUDA_SOURCES} engine/checked.c engine/error.c engine/device/operation.c)
target_include_directories(fsdp_cuda PRIVATE ${CMAKE_SOURCE_DIR} engine/device/cuda/ptx)
target_include_directories(fsdp_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} ${NCCL_INCLUDE})
target_compile_definitions(fsdp_cuda PRIVATE _GNU_SOURCE FSDP_VERSION="${PROJECT_VERSION}")
target_compile_options(
  fsdp_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>
                    $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${FSDP_WERROR}>>:-Werror=all-warnings>)
target_link_libraries(fsdp_cuda PRIVATE CUDA::cublasLt ${NCCL_LIBRARY})
target_link_options(fsdp_cuda PRIVATE -Wl,--no-undefined -Wl,--exclude-libs,ALL)
set_target_properties(
  fsdp_cuda
  PROPERTIES C_VISIBILITY_PRESET hidden
             CUDA_VISIBILITY_PRESET hidden
             CUDA_RUNTIME_LIBRARY Static
             INSTALL_RPATH_USE_LINK_PATH ON
             LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
install(TARGETS fsdp_cuda LIBRARY DESTINATION lib/fsdp_train)
