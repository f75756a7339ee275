# xgrammar (JSON schemas as grammars over tokens) as a static library, from its PyPI source package at a pin. pip fetches the
# package; asking the build backend for the version is part of that, hence the two tools beside it. It is built once for all
# presets, while configuring: it is a third of all that there is to compile, and sanitizers look at lily's own code.
set(LILY_XGRAMMAR_VERSION 0.2.8)
set(LILY_XGRAMMAR_SHA256 8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80)
set(LILY_PACKAGES ${PROJECT_SOURCE_DIR}/build/packages CACHE PATH "where source packages from PyPI are kept")
set(xgrammar_directory ${LILY_PACKAGES}/xgrammar-${LILY_XGRAMMAR_VERSION})
set(xgrammar_build ${LILY_PACKAGES}/xgrammar-build)

function(lily_fetch_xgrammar)
  if(EXISTS ${xgrammar_directory}/CMakeLists.txt)
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

function(lily_build_xgrammar)
  if(EXISTS ${xgrammar_build}/done-${LILY_XGRAMMAR_VERSION})
    return()
  endif()
  message(STATUS "Building xgrammar ${LILY_XGRAMMAR_VERSION}, once")
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${PROJECT_SOURCE_DIR}/cmake/xgrammar -B ${xgrammar_build} -G ${CMAKE_GENERATOR}
                          -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} -DXGRAMMAR_DIRECTORY=${xgrammar_directory}
                  COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
  execute_process(COMMAND ${CMAKE_COMMAND} --build ${xgrammar_build} COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
  file(TOUCH ${xgrammar_build}/done-${LILY_XGRAMMAR_VERSION})
endfunction()

file(MAKE_DIRECTORY ${LILY_PACKAGES})
file(LOCK ${LILY_PACKAGES} DIRECTORY)
lily_fetch_xgrammar()
lily_build_xgrammar()
file(LOCK ${LILY_PACKAGES} DIRECTORY RELEASE)

add_library(xgrammar STATIC IMPORTED GLOBAL)
set_target_properties(xgrammar PROPERTIES IMPORTED_LOCATION ${xgrammar_build}/libxgrammar.a)
target_compile_definitions(xgrammar INTERFACE XGRAMMAR_ENABLE_CPPTRACE=0)
target_include_directories(xgrammar SYSTEM INTERFACE
  ${xgrammar_directory}/include ${xgrammar_directory}/3rdparty/dlpack/include ${xgrammar_directory}/3rdparty/picojson)
