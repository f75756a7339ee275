# What the GPU parts of lily are built with.

# lily_host_kernels(lily_kernels a.metal b.metal): adds kernel files to a target as C++, for the emulator and for what
# launches are checked against. Optimised always, or tests take minutes.
function(lily_host_kernels target)
  target_sources(${target} PRIVATE ${ARGN})
  set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX
    COMPILE_OPTIONS "-x;c++;-O2;-fno-strict-aliasing;-Wno-unknown-pragmas;-Wno-conversion"
    COMPILE_DEFINITIONS LILY_DEFINE_ENTRIES)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src/kernels/shim/host)
endfunction()

# lily_embed(lily_device cuda_images a.fatbin b.fatbin): the files' bytes in the target, as embedded::cuda_images()
# (src/device/embedded.h). The files may be made by the build.
function(lily_embed target name)
  set(assembly "")
  set(externs "")
  set(table "")
  set(index 0)
  foreach(file ${ARGN})
    get_filename_component(entry ${file} NAME)
    string(REGEX REPLACE "\\.(fatbin|metal)$" "" entry ${entry})
    string(APPEND assembly "LILY_EMBED(${name}_${index}, \"${file}\")\n")
    string(APPEND externs "extern const std::byte lily_${name}_${index}_begin[], lily_${name}_${index}_end[];\n")
    string(APPEND table "      {\"${entry}\", {lily_${name}_${index}_begin, lily_${name}_${index}_end}},\n")
    math(EXPR index "${index} + 1")
  endforeach()
  set(LILY_EMBED_NAME ${name})
  set(LILY_EMBED_ASSEMBLY ${assembly})
  set(LILY_EMBED_EXTERNS ${externs})
  set(LILY_EMBED_TABLE ${table})
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/embedded.cpp.in ${source} @ONLY)
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS "${ARGN}")
  target_sources(${target} PRIVATE ${source})
endfunction()

# ---- CUDA: an optional part. The binary that has it runs without any CUDA library: the driver is looked for at run time.

find_program(LILY_NVCC nvcc HINTS /usr/local/cuda/bin $ENV{CUDA_HOME}/bin)
set(LILY_CUDA "" CACHE STRING "ON or OFF: build the CUDA device (needs nvcc); empty: where there is a GPU, and for the tests")
if(LILY_CUDA STREQUAL "")
  set(LILY_CUDA OFF)
  if(LILY_NVCC AND (LILY_TESTS OR EXISTS /dev/nvidiactl)) # nvcc takes minutes, which a first chat without a GPU can do without
    set(LILY_CUDA ON)
  endif()
endif()
set(LILY_CUDA_ARCHITECTURES "90-ptx" CACHE STRING
    "GPUs to compile kernels for: 90 is machine code, 80-virtual PTX that the driver compiles for all later ones, 90-ptx both")
string(REGEX MATCHALL "[0-9]+" lily_cuda_numbers "${LILY_CUDA_ARCHITECTURES}")
list(SORT lily_cuda_numbers COMPARE NATURAL)
list(GET lily_cuda_numbers 0 lily_cuda_lowest)
if(LILY_CUDA AND NOT LILY_NVCC)
  message(FATAL_ERROR "LILY_CUDA is ON, but nvcc was not found: set LILY_NVCC or put it on the PATH")
endif()
if(LILY_CUDA)
  get_filename_component(lily_cuda_root ${LILY_NVCC} REALPATH)
  get_filename_component(lily_cuda_root ${lily_cuda_root}/../.. ABSOLUTE)
  find_path(LILY_CUDA_INCLUDE cuda.h HINTS ${lily_cuda_root}/include ${lily_cuda_root}/targets/x86_64-linux/include
                                     REQUIRED NO_CACHE)
endif()

# lily_cuda_images(out a.metal b.metal): compiles each file with nvcc; `out` are the files it makes.
function(lily_cuda_images out)
  set(architectures "")
  foreach(architecture ${LILY_CUDA_ARCHITECTURES})
    string(REGEX REPLACE "-.*$" "" number ${architecture})
    if(architecture MATCHES "-virtual$")
      list(APPEND architectures -gencode arch=compute_${number},code=compute_${number})
    elseif(architecture MATCHES "-ptx$")
      list(APPEND architectures -gencode arch=compute_${number},code=[sm_${number},compute_${number}])
    else()
      list(APPEND architectures -gencode arch=compute_${number},code=sm_${number})
    endif()
  endforeach()
  set(images "")
  foreach(source ${ARGN})
    get_filename_component(stem ${source} NAME_WE)
    set(image ${CMAKE_CURRENT_BINARY_DIR}/${stem}.fatbin)
    add_custom_command(
      OUTPUT ${image}
      COMMAND ${LILY_NVCC} -x cu -std=c++20 -O3 ${architectures} -I${PROJECT_SOURCE_DIR}/src/kernels/shim/cuda
              -I${PROJECT_SOURCE_DIR}/src -fatbin -MD -MF ${image}.d -MT ${image} ${source} -o ${image}
      DEPENDS ${source}
      DEPFILE ${image}.d
      COMMENT "nvcc ${stem}"
      VERBATIM)
    list(APPEND images ${image})
  endforeach()
  set(${out} ${images} PARENT_SCOPE)
endfunction()

# ---- Metal: on a Mac the device itself; on Linux the same host code against the tests' software Metal, built by clang
# because metal-cpp needs blocks.

# lily_metal_sources(out a.metal b.metal): each file with its includes in place; `out` are the files it makes.
file(GLOB lily_kernel_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/kernels/*.h)
function(lily_metal_sources out)
  set(texts "")
  foreach(source ${ARGN})
    get_filename_component(name ${source} NAME)
    set(text ${CMAKE_CURRENT_BINARY_DIR}/inlined/${name})
    add_custom_command(
      OUTPUT ${text}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/inlined
      COMMAND awk -v root=${PROJECT_SOURCE_DIR}/src -f ${PROJECT_SOURCE_DIR}/cmake/inline_source.awk ${source} > ${text}
      DEPENDS ${source} ${lily_kernel_headers} ${PROJECT_SOURCE_DIR}/cmake/inline_source.awk
      COMMENT "inlining ${name}"
      VERBATIM)
    list(APPEND texts ${text})
  endforeach()
  set(${out} ${texts} PARENT_SCOPE)
endfunction()

set(LILY_SOFT_METAL OFF)
if(APPLE OR (LILY_TESTS AND NOT LILY_SANITIZE AND NOT CMAKE_CROSSCOMPILING))
  include(${CMAKE_CURRENT_LIST_DIR}/metal_cpp.cmake)
  find_program(LILY_CLANG NAMES clang++-19 clang++-20 clang++-21 clang++ clang++-14)
  if(APPLE AND NOT LILY_METAL_CPP)
    message(FATAL_ERROR "metal-cpp is needed on a Mac")
  endif()
  if(NOT APPLE AND LILY_METAL_CPP AND LILY_CLANG AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    set(LILY_SOFT_METAL ON)
  elseif(NOT APPLE AND DEFINED ENV{CI})
    message(FATAL_ERROR "the software Metal needs clang++ and metal-cpp")
  endif()
endif()

# lily_clang_objects(out FLAGS -fsanitize=thread SOURCES a.cpp b.cpp): compiles with clang beside whatever compiler the
# project has; `out` are the objects, to be given to add_executable.
function(lily_clang_objects out)
  cmake_parse_arguments(ARG "" "" "FLAGS;SOURCES" ${ARGN})
  set(objects "")
  string(MD5 variant "${ARG_FLAGS}")
  foreach(source ${ARG_SOURCES})
    get_filename_component(name ${source} NAME)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/clang/${variant}/${name}.o)
    add_custom_command(
      OUTPUT ${object}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/clang/${variant}
      COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${LILY_CLANG} -std=c++20 -fblocks -O1 -g1 -Wall -Wextra -Wshadow
              -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers -Werror ${ARG_FLAGS}
              -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/tests
              -I${PROJECT_SOURCE_DIR}/src/kernels/shim/host -isystem ${PROJECT_SOURCE_DIR}/tests/device/soft_metal/apple
              -isystem ${LILY_METAL_CPP} -MD -MF ${object}.d -MT ${object} -c ${source} -o ${object}
      DEPENDS ${source}
      DEPFILE ${object}.d
      COMMENT "clang ${name}"
      VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  set(${out} ${objects} PARENT_SCOPE)
endfunction()
