# Warnings are errors in lily's own targets (`lily_flags`); third-party headers come in as SYSTEM.
add_library(lily_flags INTERFACE)
target_compile_options(lily_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror)
target_include_directories(lily_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
if(LILY_SANITIZE)
  target_compile_options(lily_flags INTERFACE -fsanitize=${LILY_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(lily_flags INTERFACE -fsanitize=${LILY_SANITIZE})
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
