# lily_library(checkpoint SOURCES a.cpp b.cpp DEPS lily::support fmt::fmt)  ->  target lily_checkpoint, alias lily::checkpoint
function(lily_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(lily_${name} STATIC ${ARG_SOURCES})
  add_library(lily::${name} ALIAS lily_${name})
  target_link_libraries(lily_${name} PUBLIC ${ARG_DEPS} PRIVATE lily_flags ${ARG_PRIVATE_DEPS})
  target_include_directories(lily_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
endfunction()

# lily_test(tokenizer_test SOURCES tokenizer_test.cpp DEPS lily::text LABELS unit)  ->  a GoogleTest binary, one ctest entry
# Labels: unit property parity server gpu, and threads for what ThreadSanitizer is to watch. In a sanitizer build the entry is
# called asan.tokenizer_test or tsan.tokenizer_test, carries that label alone, and has five times the TIMEOUT (120 s).
# Label arm64: what the preset arm64 builds and emulates as well, as arm64.tokenizer_test, compiled with LILY_EMULATED.
add_custom_target(tests)
function(lily_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(LILY_SANITIZE STREQUAL "thread" AND NOT "threads" IN_LIST ARG_LABELS)
    return()
  endif()
  if(CMAKE_CROSSCOMPILING AND NOT "arm64" IN_LIST ARG_LABELS)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  add_dependencies(tests ${name})
  target_link_libraries(${name} PRIVATE lily_flags ${ARG_DEPS} GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE LILY_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(CMAKE_CROSSCOMPILING)
    target_compile_definitions(${name} PRIVATE LILY_EMULATED)
    lily_emulated_test(arm64.${name} max,pauth=off ${name})
    return()
  endif()
  list(REMOVE_ITEM ARG_LABELS arm64)
  set(test ${name})
  set(fixture "")
  if(LILY_SANITIZE)
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 5")
    string(REGEX REPLACE "^(.).*" "\\1san" ARG_LABELS ${LILY_SANITIZE}) # asan or tsan
    set(test ${ARG_LABELS}.${name})
    set(fixture FIXTURES_REQUIRED ${ARG_LABELS}) # the build, in tools/full-suite
  endif()
  add_test(NAME ${test} COMMAND ${name})
  set_tests_properties(${test} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} ${fixture})
endfunction()

# lily_emulated_test(arm64.tokenizer_test CPU tokenizer_test [ARGS])  ->  a ctest entry that runs it on one of the emulator's CPUs.
# "max" has all instructions; without pauth=off it would spend most of its time on signing pointers.
function(lily_emulated_test test cpu target)
  add_test(NAME ${test} COMMAND qemu-aarch64 -L ${CMAKE_SYSROOT} -cpu ${cpu} $<TARGET_FILE:${target}> ${ARGN})
  set_tests_properties(${test} PROPERTIES LABELS arm64 TIMEOUT 600 FIXTURES_REQUIRED arm64)
endfunction()

# lily_oracle_test(tokenizer_oracle SCRIPT tokenizer_oracle.py ARGS $<TARGET_FILE:lily>)  ->  a Python program
# that compares lily with an independent implementation and exits 0 if they agree. It runs in the virtual environment that
# `./lily test` makes from tests/requirements.txt; without one the test counts as skipped, with CI=true as failed. Sanitizer
# builds have those with the label `threads`, named as by lily_test, which run the sanitizer's own `lily`.
set(LILY_PYTHON ${PROJECT_SOURCE_DIR}/build/venv/bin/python CACHE FILEPATH "the Python of the oracle tests")
function(lily_oracle_test name)
  cmake_parse_arguments(ARG "" "SCRIPT;TIMEOUT" "ARGS;LABELS" ${ARGN})
  if(CMAKE_CROSSCOMPILING OR (LILY_SANITIZE AND NOT "threads" IN_LIST ARG_LABELS))
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  set(test ${name})
  set(labels "oracle;${ARG_LABELS}")
  set(more "")
  if(LILY_SANITIZE)
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 5")
    string(REGEX REPLACE "^(.).*" "\\1san" labels ${LILY_SANITIZE})
    set(test ${labels}.${name})
    set(more FIXTURES_REQUIRED ${labels}
             ENVIRONMENT "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/server/tsan_suppressions.txt")
    add_dependencies(tests lily)
  endif()
  add_test(NAME ${test} COMMAND ${PROJECT_SOURCE_DIR}/tests/oracle.sh ${LILY_PYTHON}
                                ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_SCRIPT} ${ARG_ARGS})
  set_tests_properties(${test} PROPERTIES LABELS "${labels}" TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77 ${more})
endfunction()
