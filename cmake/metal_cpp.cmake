# Apple's metal-cpp headers, from the PyPI wheel that ships them (metal_cpp.txt pins it): LILY_METAL_CPP is their folder, or
# empty when they cannot be fetched. The same on a Mac and on Linux, where the tests' software Metal needs them.
set(metal_cpp_folder ${PROJECT_SOURCE_DIR}/build/metal-cpp)
file(SHA256 ${CMAKE_CURRENT_LIST_DIR}/metal_cpp.txt metal_cpp_pin)
set(LILY_METAL_CPP ${metal_cpp_folder}/mlx/include/metal_cpp)
if(NOT EXISTS ${metal_cpp_folder}/${metal_cpp_pin})
  message(STATUS "fetching metal-cpp")
  file(REMOVE_RECURSE ${metal_cpp_folder})
  find_package(Python3 COMPONENTS Interpreter REQUIRED)
  set(metal_cpp_python ${Python3_EXECUTABLE})
  execute_process(COMMAND ${metal_cpp_python} -m pip --version RESULT_VARIABLE no_pip OUTPUT_QUIET ERROR_QUIET)
  if(no_pip)
    execute_process(COMMAND ${metal_cpp_python} -m venv ${metal_cpp_folder}/venv)
    set(metal_cpp_python ${metal_cpp_folder}/venv/bin/python)
  endif()
  execute_process(
    COMMAND ${metal_cpp_python} -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all:
            --platform macosx_15_0_arm64 --python-version 3.12 --require-hashes
            -r ${CMAKE_CURRENT_LIST_DIR}/metal_cpp.txt -d ${metal_cpp_folder}
    RESULT_VARIABLE failed ERROR_VARIABLE complaint)
  file(GLOB wheel ${metal_cpp_folder}/*.whl)
  if(failed OR NOT wheel)
    set(LILY_METAL_CPP "")
    message(STATUS "metal-cpp could not be fetched: ${complaint}")
  else()
    file(ARCHIVE_EXTRACT INPUT ${wheel} DESTINATION ${metal_cpp_folder} PATTERNS "mlx/include/metal_cpp/*")
    file(REMOVE ${wheel})
    file(TOUCH ${metal_cpp_folder}/${metal_cpp_pin})
  endif()
endif()
