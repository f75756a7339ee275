# Third-party libraries: the system's own first, otherwise fetched at the pin named here. Licences are in THIRD_PARTY.md.
# Targets for lily's own CMakeLists: fmt::fmt CLI11::CLI11 nlohmann_json::nlohmann_json utf8proc::utf8proc xxHash::xxhash
# hwy::hwy Threads::Threads; with LILY_SERVE httplib::httplib; with LILY_TESTS
# GTest::gtest_main rapidcheck PCRE2::8BIT; with LILY_BENCH benchmark::benchmark.
include(FetchContent)
list(APPEND CMAKE_MODULE_PATH ${CMAKE_CURRENT_LIST_DIR}/modules)

# lily_dependency(fmt TARGET fmt::fmt URL https://... TAG 9.1.0 [SOURCE_TARGET t] [SOURCE_SUBDIR dir] [OPTIONS A=OFF ...])
# Makes TARGET available. SOURCE_TARGET is what the project calls it when built from source, if it has no such alias.
# A macro, since targets found by find_package belong to the directory that looks for them.
macro(lily_dependency name)
  cmake_parse_arguments(DEP "" "TARGET;URL;TAG;SOURCE_TARGET;SOURCE_SUBDIR" "OPTIONS" ${ARGN})
  foreach(option ${DEP_OPTIONS})
    string(REGEX MATCH "^([^=]+)=(.*)$" matched ${option})
    set(${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
  endforeach()
  set(DEP_ARGS GIT_REPOSITORY ${DEP_URL} GIT_TAG ${DEP_TAG})
  if(NOT DEP_TAG MATCHES "^[0-9a-f]+$") # a commit's hash needs the whole history
    list(APPEND DEP_ARGS GIT_SHALLOW ON)
  endif()
  if(DEP_SOURCE_SUBDIR)
    list(APPEND DEP_ARGS SOURCE_SUBDIR ${DEP_SOURCE_SUBDIR})
  endif()
  FetchContent_Declare(${name} ${DEP_ARGS} FIND_PACKAGE_ARGS)
  FetchContent_MakeAvailable(${name})
  if(NOT TARGET ${DEP_TARGET})
    add_library(${DEP_TARGET} ALIAS ${DEP_SOURCE_TARGET})
  endif()
  # Headers of fetched targets count as system headers too. (FetchContent's own SYSTEM breaks git's arguments in CMake 3.25.)
  get_target_property(real_target ${DEP_TARGET} ALIASED_TARGET)
  if(real_target)
    set_target_properties(${real_target} PROPERTIES SYSTEM ON)
  endif()
endmacro()

set(CMAKE_POLICY_DEFAULT_CMP0077 NEW) # the OPTIONS below reach the fetched projects
set(BUILD_SHARED_LIBS OFF)
find_package(Threads REQUIRED)
lily_dependency(fmt TARGET fmt::fmt URL https://github.com/fmtlib/fmt TAG 9.1.0)
lily_dependency(CLI11 TARGET CLI11::CLI11 URL https://github.com/CLIUtils/CLI11 TAG v2.1.2
                OPTIONS CLI11_BUILD_TESTS=OFF CLI11_BUILD_EXAMPLES=OFF)
lily_dependency(nlohmann_json TARGET nlohmann_json::nlohmann_json URL https://github.com/nlohmann/json TAG v3.11.2)
lily_dependency(utf8proc TARGET utf8proc::utf8proc URL https://github.com/JuliaStrings/utf8proc TAG v2.8.0
                SOURCE_TARGET utf8proc OPTIONS UTF8PROC_INSTALL=OFF)
lily_dependency(xxHash TARGET xxHash::xxhash URL https://github.com/Cyan4973/xxHash TAG v0.8.1
                SOURCE_SUBDIR cmake_unofficial OPTIONS XXHASH_BUILD_XXHSUM=OFF)
lily_dependency(hwy TARGET hwy::hwy URL https://github.com/google/highway TAG 1.0.3
                SOURCE_TARGET hwy OPTIONS BUILD_TESTING=OFF HWY_ENABLE_EXAMPLES=OFF HWY_ENABLE_CONTRIB=OFF
                HWY_ENABLE_INSTALL=OFF)
if(LILY_SERVE)
  include(cmake/xgrammar.cmake)
  lily_dependency(httplib TARGET httplib::httplib URL https://github.com/yhirose/cpp-httplib TAG v0.11.4)
endif()
if(LILY_TESTS)
  lily_dependency(GTest TARGET GTest::gtest_main URL https://github.com/google/googletest TAG release-1.12.1
                  OPTIONS INSTALL_GTEST=OFF)
  if(TARGET gtest)
    set_target_properties(gtest PROPERTIES SYSTEM ON)
  endif()
  lily_dependency(rapidcheck TARGET rapidcheck URL https://github.com/emil-e/rapidcheck
                  TAG ff6af6fc683159deb51c543b065eba14dfcf329b)
  lily_dependency(PCRE2 TARGET PCRE2::8BIT URL https://github.com/PCRE2Project/pcre2 TAG pcre2-10.42
                  SOURCE_TARGET pcre2-8-static OPTIONS PCRE2_BUILD_TESTS=OFF PCRE2_BUILD_PCRE2GREP=OFF)
endif()
if(LILY_BENCH)
  lily_dependency(benchmark TARGET benchmark::benchmark URL https://github.com/google/benchmark TAG v1.7.1
                  OPTIONS BENCHMARK_ENABLE_TESTING=OFF BENCHMARK_ENABLE_INSTALL=OFF)
endif()
