# xgrammar (JSON schemas as grammars over tokens) as a static library, from its PyPI source package at a pin. pip fetches the
# package; asking the build backend for the version is part of that, hence the two tools beside it. Nothing of it is built
# but the C++ library, without its Python bindings.
set(LILY_XGRAMMAR_VERSION 0.2.8)
set(LILY_XGRAMMAR_SHA256 8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80)
set(LILY_PACKAGES ${PROJECT_SOURCE_DIR}/build/packages CACHE PATH "where source packages from PyPI are kept")

function(lily_fetch_xgrammar directory)
  if(EXISTS ${directory}/CMakeLists.txt)
    return()
  endif()
  set(archive ${LILY_PACKAGES}/xgrammar-${LILY_XGRAMMAR_VERSION}.tar.gz)
  if(NOT EXISTS ${archive})
    message(STATUS "Fetching xgrammar ${LILY_XGRAMMAR_VERSION} with pip")
    find_package(Python3 REQUIRED COMPONENTS Interpreter)
    set(venv ${LILY_PACKAGES}/venv)
    set(pip ${venv}/bin/python -m pip --disable-pip-version-check)
    execute_process(COMMAND ${Python3_EXECUTABLE} -m venv ${venv} COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
    execute_process(COMMAND ${pip} install -q scikit-build-core==1.1.2 setuptools-scm==10.3.4 COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND ${pip} download -q --no-deps --no-build-isolation --no-binary xgrammar -d ${LILY_PACKAGES}
                            xgrammar==${LILY_XGRAMMAR_VERSION}
                    COMMAND_ERROR_IS_FATAL ANY)
  endif()
  file(SHA256 ${archive} found)
  if(NOT found STREQUAL LILY_XGRAMMAR_SHA256)
    message(FATAL_ERROR "${archive} has SHA-256 ${found}, expected ${LILY_XGRAMMAR_SHA256}: remove it and try again")
  endif()
  file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${LILY_PACKAGES})
endfunction()

set(xgrammar_directory ${LILY_PACKAGES}/xgrammar-${LILY_XGRAMMAR_VERSION})
lily_fetch_xgrammar(${xgrammar_directory})
file(GLOB_RECURSE xgrammar_sources ${xgrammar_directory}/cpp/*.cc)
list(FILTER xgrammar_sources EXCLUDE REGEX "/(tvm_ffi|nanobind)/")
add_library(xgrammar STATIC EXCLUDE_FROM_ALL ${xgrammar_sources})
target_compile_options(xgrammar PRIVATE -O2 -w)
target_compile_definitions(xgrammar PUBLIC XGRAMMAR_ENABLE_CPPTRACE=0)
target_include_directories(xgrammar SYSTEM PUBLIC
  ${xgrammar_directory}/include ${xgrammar_directory}/3rdparty/dlpack/include ${xgrammar_directory}/3rdparty/picojson)
