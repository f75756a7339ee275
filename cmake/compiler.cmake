# Warnings are errors in lily's own targets (`lily_flags`); third-party headers come in as SYSTEM.
add_library(lily_flags INTERFACE)
target_compile_options(lily_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers)
target_include_directories(lily_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
if(NOT LILY_SANITIZE) # instrumented code makes GCC warn of what is not there
  target_compile_options(lily_flags INTERFACE -Werror)
endif()
if(LILY_SANITIZE)
  target_compile_options(lily_flags INTERFACE -fsanitize=${LILY_SANITIZE} -fno-sanitize-recover=all
                                              -fno-omit-frame-pointer)
  target_link_options(lily_flags INTERFACE -fsanitize=${LILY_SANITIZE})
endif()
if(LILY_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "LILY_FUZZ needs clang: configure with `cmake --preset fuzz`")
  endif()
  target_compile_options(lily_flags INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(lily_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(LILY_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
  # Bounds checks inside the standard library; neither changes its ABI.
  target_compile_definitions(lily_flags INTERFACE _GLIBCXX_ASSERTIONS
                             _LIBCPP_HARDENING_MODE=_LIBCPP_HARDENING_MODE_EXTENSIVE)
endif()
if(LILY_PORTABLE)
  target_compile_definitions(lily_flags INTERFACE HWY_COMPILE_ONLY_EMU128)
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
endif()
